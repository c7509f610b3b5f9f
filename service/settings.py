"""Settings of one process, read once from the environment."""
