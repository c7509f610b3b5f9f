"""Latency: the work of a step, its time, and the closed form of a load."""
