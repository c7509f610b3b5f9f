"""Reports: one verdict in the formats that pipelines and people read; pure functions."""
