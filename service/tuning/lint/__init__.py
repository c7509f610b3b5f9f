"""Lint: reads existing commands and manifests, and says where each value stands."""
