"""The page for people: sources in `web`, what is served in `static`."""
