"""The `setpoint` command as a shell starts it: a process of its own."""

import subprocess
import sys

_LIMIT_S = 300


def setpoint(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Return what came of the command with these words."""
    return subprocess.run(
        [sys.executable, "-c", "from service.cli.main import main; main()", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
