"""Files: a configuration rendered for the places where people keep it."""
