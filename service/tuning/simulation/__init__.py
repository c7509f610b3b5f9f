"""Simulation: traffic, the V1 scheduler, and the figures that come out."""
