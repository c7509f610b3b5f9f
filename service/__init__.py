"""Setpoint: a REST service, a command line and the pure core behind both."""
