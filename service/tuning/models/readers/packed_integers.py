"""Reads checkpoints of packed integers: AWQ, GPTQ and AutoRound."""

import msgspec

from service.tuning.models.formats import (
    FULL_BITS,
    MOST_BITS,
    NIBBLE_BITS,
    integer_format,
    of_formats,
    read_group_size,
    targeted,
)
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import Quantization, WeightFormat


def read_awq(section: ConfigFields, method: str) -> Quantization:
    """Return what AWQ stored."""
    bits = section.integer_or(NIBBLE_BITS, "bits", "w_bit", maximum=MOST_BITS)
    return of_formats(
        method,
        (
            integer_format(
                bits,
                group_size=read_group_size(section, "group_size", "q_group_size"),
                has_zero_points=section.flag("zero_point", default=True),
            ),
        ),
    )


def read_gptq(section: ConfigFields, method: str) -> Quantization:
    """Return what GPTQ stored, with the exceptions its `dynamic` names."""
    bits = section.integer_or(NIBBLE_BITS, "bits", maximum=MOST_BITS)
    group_size = read_group_size(section, "group_size")
    base = integer_format(bits, group_size=group_size, has_zero_points=True)
    skipped, others = _gptq_overrides(section, group_size=group_size)
    head = section.flag("lm_head")
    targets = ("lm_head",) if head else ()
    formats = (*others, base, *(() if not head else (targeted(base, targets),)))
    return msgspec.structs.replace(of_formats(method, formats), ignore=skipped, quantizes_head=head)


def _gptq_overrides(
    section: ConfigFields, *, group_size: int | None
) -> tuple[tuple[str, ...], tuple[WeightFormat, ...]]:
    """Return modules that GPTQ's `dynamic` leaves out and those it stores otherwise."""
    dynamic = section.section("dynamic")
    if dynamic is None:
        return (), ()
    skipped: list[str] = []
    others: list[WeightFormat] = []
    for key in dynamic:
        pattern = "re:" + key.removeprefix("-:").removeprefix("+:")
        if key.startswith("-:"):
            skipped.append(pattern)
            continue
        override = dynamic.section(key)
        bits = override.maybe_integer("bits", maximum=MOST_BITS) if override else None
        if bits is not None:
            made = integer_format(bits, group_size=group_size, has_zero_points=True)
            others.append(targeted(made, (pattern,)))
    return tuple(skipped), tuple(others)


def read_auto_round(section: ConfigFields, method: str) -> Quantization:
    """Return what AutoRound stored; without its exceptions the layout is not known."""
    bits = section.integer_or(NIBBLE_BITS, "bits", maximum=MOST_BITS)
    group_size = read_group_size(section, "group_size")
    base = integer_format(bits, group_size=group_size, has_zero_points=True)
    skipped, others = _auto_round_extras(section, group_size=group_size)
    states_layout = any(
        key in section for key in ("extra_config", "block_name_to_quantize", "to_quant_block_names")
    )
    return msgspec.structs.replace(
        of_formats(method, (*others, base)),
        ignore=skipped,
        layout_known=states_layout,
    )


def _auto_round_extras(
    section: ConfigFields, *, group_size: int | None
) -> tuple[tuple[str, ...], tuple[WeightFormat, ...]]:
    extra = section.section("extra_config")
    if extra is None:
        return (), ()
    skipped: list[str] = []
    others: list[WeightFormat] = []
    for name in extra:
        module = extra.section(name)
        bits = module.maybe_integer("bits", maximum=MOST_BITS) if module else None
        if bits is None:
            continue
        pattern = f"re:{name}" if _looks_regular(name) else name
        if bits >= FULL_BITS:
            skipped.append(pattern)
        else:
            made = integer_format(bits, group_size=group_size, has_zero_points=True)
            others.append(targeted(made, (pattern,)))
    return tuple(skipped), tuple(others)


def _looks_regular(name: str) -> bool:
    return any(mark in name for mark in (".*", "\\", "[", "("))
