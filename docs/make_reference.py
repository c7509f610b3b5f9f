"""Write docs/reference.md from the code: settings, commands, problems, rules."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from service.api.metrics import Metrics
from service.api.store_metrics import shared_families
from service.cli.main import cli
from service.problems import PROBLEMS
from service.settings import describe_settings
from service.tuning.engine.versions import NEWEST, known_releases
from service.tuning.rules.registry import all_rules

TARGET = Path(__file__).with_name("reference.md")


def reference() -> str:
    """Return the text of docs/reference.md."""
    parts = [
        "# Reference",
        "Written by `make reference`; a test holds it to the code.",
        "## Settings",
        _table(("variable", "default", "meaning"), describe_settings()),
        "## Commands",
        *_commands(),
        "## Problems",
        "Every refusal is an `application/problem+json` body with one of these codes.",
        _table(
            ("code", "status", "title"),
            [(f"`{code}`", kind.status, kind.title) for code, kind in PROBLEMS.items()],
        ),
        "## Metrics",
        "`GET /metrics` in Prometheus' text format. What processes share is the same on each.",
        _table(("metric", "kind", "meaning"), list(_metrics())),
        "## Rules",
        _table(
            ("rule", "severity", "title", "settings", "since", "until"),
            [
                (
                    rule.id,
                    rule.severity,
                    rule.title,
                    ", ".join(f"`{name}`" for name in rule.settings),
                    rule.since or "",
                    rule.until or "",
                )
                for rule in all_rules()
            ],
        ),
        "## vLLM releases",
        f"Newest: {NEWEST.text}. Supported: "
        + ", ".join(v.text for v in known_releases() if not v.is_legacy)
        + ". Older ones are answered with low confidence.",
    ]
    return "\n\n".join(parts) + "\n"


def _metrics() -> Iterator[tuple[str, str, str]]:
    for family in sorted([*Metrics().families(), *shared_families()], key=lambda item: item.name):
        suffix = "_total" if family.type == "counter" else ""
        yield f"`{family.name}{suffix}`", family.type, family.documentation


def _commands() -> Iterator[str]:
    for name in sorted(cli.commands):
        yield from _command(name, cli.commands[name])


def _command(name: str, command: click.Command) -> Iterator[str]:
    yield f"### `setpoint {name}`"
    yield (command.help or "").strip()
    context = click.Context(command)
    rows = [
        tuple(cell.replace("|", "\\|") for cell in record)
        for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) is not None
    ]
    yield _table(("option", "meaning"), rows)
    if isinstance(command, click.Group):
        for part in sorted(command.commands):
            yield from _command(f"{name} {part}", command.commands[part])


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TARGET.read_text(encoding="utf-8") != reference())
    TARGET.write_text(reference(), encoding="utf-8")
