"""Search: the space of legal configurations and the front of the best."""
