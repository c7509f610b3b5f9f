"""The pure core: models, hardware, memory, latency, rules, search, files.

No input or output but package data.
"""
