"""Plain pieces of text that files share."""

import yaml

from api_schemas.base import Json
from service.tuning.render.rendering import Rendering

_NEVER_FOLD = 100_000


def header(rendering: Rendering) -> list[str]:
    """Return what a file is and for what, one line each, without comment marks."""
    gpus = f"{rendering.gpus_per_replica} x {rendering.node.gpu.name}"
    return [
        f"Setpoint: {one_line(rendering.model_id)} with vLLM {rendering.version.text} on {gpus}."
    ]


def commented(lines: list[str]) -> str:
    """Return lines as comments of shell, YAML and Python alike."""
    return "".join(f"# {one_line(line)}\n" for line in lines)


def one_line(text: str) -> str:
    """Return text without line breaks and control characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def dump_yaml(*documents: Json, notes: list[str]) -> str:
    """Return YAML documents under a comment."""
    dumped = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=_NEVER_FOLD,
        explicit_start=len(documents) > 1,
    )
    return commented(notes) + dumped


# The C emitter writes the same text several times faster; it comes with PyYAML's wheels.
class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes the same list twice instead of pointing at it."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Never use anchors: people edit these files."""
        return True
