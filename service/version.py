"""Which Setpoint this is."""

from functools import cache
from importlib import metadata


@cache
def setpoint_version() -> str:
    """Return the version of the installed distribution."""
    return metadata.version("setpoint")
