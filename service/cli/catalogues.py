"""`setpoint models|gpus|presets|rules|versions`: what is known, offline."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import msgspec

from api_schemas.model import ModelRef
from service.cli.output import print_rows
from service.tuning.engine.versions import NEWEST, known_releases
from service.tuning.errors import UnsupportedArchitecture
from service.tuning.hardware.catalogue import all_gpus, gpu_aliases
from service.tuning.presets import all_presets

Row = Sequence[Any]
Rows = Callable[[], Iterable[Row]]
OtherNames = Callable[[str], tuple[str, ...]]
"""Other names of what a row is called, which a search finds too."""


def _models() -> Iterable[Row]:
    # Imported on use: every config is read to count its parameters.
    from service.tuning.models.catalogue import all_models, resolve_model  # noqa: PLC0415
    from service.tuning.models.inventory import parameter_count  # noqa: PLC0415

    for entry in all_models():
        try:
            spec = resolve_model(ModelRef(id=entry.id))
        except UnsupportedArchitecture as error:
            yield entry.id, error.message, None, None, entry.verified
            continue
        total, active = parameter_count(spec)
        yield entry.id, spec.architecture, _billions(total), _billions(active), entry.verified


def _gpus() -> Iterable[Row]:
    for gpu in all_gpus():
        capability = gpu.compute_capability
        yield (
            gpu.name,
            gpu.arch,
            round(gpu.memory_gib, 2),
            round(gpu.bandwidth_gb_s),
            ".".join(map(str, capability)) if capability else None,
            gpu.driver_name,
        )


def _presets() -> Iterable[Row]:
    for preset in all_presets():
        targets = ", ".join(
            f"{target.metric} p{target.percentile} {target.limit_ms:g} ms"
            for target in preset.slo.targets
        )
        yield preset.name, preset.title, targets


def _rules() -> Iterable[Row]:
    # Imported on use: the rules pull in every fact that they judge by.
    from service.tuning.rules.registry import all_rules  # noqa: PLC0415

    for rule in all_rules():
        yield rule.id, rule.severity, rule.title, ", ".join(rule.settings), rule.since, rule.until


def _versions() -> Iterable[Row]:
    for version in known_releases():
        note = "newest" if version == NEWEST else None
        yield version.text, "legacy, low confidence" if version.is_legacy else "supported", note


def _billions(parameters: float) -> str:
    return f"{parameters / 1e9:.2f} B"


def _holds(row: Row, word: str, *, other_names: OtherNames) -> bool:
    names = (*row, *other_names(str(row[0])))
    return any(word in str(name).casefold() for name in names if name)


def _no_other(_: str) -> tuple[str, ...]:
    return ()


def _command(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Rows,
    *,
    other_names: OtherNames = _no_other,
) -> click.Command:
    @click.command(name, help=f"List {title}.")
    @click.argument("search", nargs=-1)
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def command(*, search: tuple[str, ...], as_json: bool) -> None:
        words = " ".join(search).casefold().split()
        found = [
            row
            for row in rows()
            if all(_holds(row, word, other_names=other_names) for word in words)
        ]
        if not found:
            click.echo(f"none has {' and '.join(words)}; without words all are listed", err=True)
        if as_json:
            items = [dict(zip(columns, row, strict=True)) for row in found]
            click.echo(msgspec.json.format(msgspec.json.encode(items)))
        else:
            print_rows(title, columns, found)

    return command


COMMANDS = (
    _command(
        "models",
        "the models of the catalogue",
        ("id", "architecture", "parameters", "active", "verified"),
        _models,
    ),
    _command(
        "gpus",
        "the accelerators of the catalogue",
        ("name", "arch", "memory_gib", "bandwidth_gb_s", "compute_capability", "driver_name"),
        _gpus,
        other_names=gpu_aliases,
    ),
    _command("presets", "the workload presets", ("name", "title", "targets"), _presets),
    _command(
        "rules",
        "the tuning rules",
        ("id", "severity", "title", "settings", "since", "until"),
        _rules,
    ),
    _command(
        "versions", "the vLLM releases that were read", ("version", "support", "note"), _versions
    ),
)
