"""From a few measured points of one configuration to sharper predictions of the same."""
