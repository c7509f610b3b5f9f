"""Exit codes of every command, as CI pipelines read them."""

PASS = 0
FAIL = 1
USAGE = 2
INCONCLUSIVE = 3
UNREACHABLE = 4
CLOSED_PIPE = 141
"""What a shell shows of a program that SIGPIPE ended: whoever read the output left early."""
