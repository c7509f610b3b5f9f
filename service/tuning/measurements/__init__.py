"""Measurements: read from reports, converted to our definitions, or refused."""
