"""The composition root: wires settings, store and routes."""
