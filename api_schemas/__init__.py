"""Setpoint's nouns: the Structs that travel on the wire and through the core."""
