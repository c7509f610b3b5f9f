"""How much a file may ask of its reader, and the refusal of one that asks more."""

MAX_CHARACTERS = 2_000_000
"""Of one file; the largest manifests in use have some hundred thousand."""
MAX_LINE_CHARACTERS = 200_000
MAX_LINES = 20_000
"""Of an environment file or a unit."""
MAX_NODES = 100_000
"""YAML scalars, lists and mappings of one file, after aliases are followed."""
MAX_DEPTH = 64
MAX_WORDS = 20_000
"""Words of one shell script."""
MAX_ARGUMENTS = 1_000
"""Of one engine; the longest commands in use have about sixty."""
MAX_ENGINES = 2_000
MAX_UNKNOWN = 500
"""Names in one file that no release has: each is compared with all that are known."""
MAX_NESTED_SCRIPTS = 4
"""`bash -c` in `docker run` in a list in a manifest, and one more."""


class Unreadable(Exception):
    """A file that cannot be read within the limits; the message says why."""

    def __init__(self, reason: str, *, offset: int = 0, is_malformed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_malformed = is_malformed
        """Whether the syntax is broken, rather than a limit crossed."""
        self.offset = offset
