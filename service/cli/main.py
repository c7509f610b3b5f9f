"""The `setpoint` command."""
