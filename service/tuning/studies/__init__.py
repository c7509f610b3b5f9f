"""Studies: the space that is searched, and what the trials add up to."""
