"""Named workloads, and the filling of what a caller left out.

The figures and their sources are in `data/presets.json`.
"""

import functools
import math
from importlib import resources

import msgspec

from api_schemas.explanation import Source
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    LognormalLength,
    PoissonArrivals,
    Preset,
    PresetDescription,
    SampleLengths,
    Trace,
    Users,
    Workload,
)
from service.tuning.errors import InvalidRequest
from service.tuning.lengths import mean_tokens
from service.tuning.workload_check import check_workload

DEFAULT_MAX_PREEMPTIONS_PER_REQUEST = 0.01
"""One request in a hundred: the contract's default for `max_preemptions_per_request`."""
_FALLBACK: Preset = "chat"
_MOST_REQUESTS_PER_S = 1e6
_GROUPED_FROM = 1000.0
"""Rates from here on are written in full: a power of ten is hard to read."""


class UserHabits(msgspec.Struct, frozen=True, kw_only=True):
    """How people turn into requests, per use case (llm-d-planner's table)."""

    active_fraction: float
    requests_per_active_user_per_min: float
    peak_factor: float


class PresetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the data file."""

    name: Preset
    title: str
    prompt_tokens: LognormalLength
    output_tokens: LognormalLength
    shared_prefix_tokens: int
    arrivals: Arrivals
    targets: list[LatencyTarget]
    users: UserHabits
    source: list[str]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    about: str
    sources: dict[str, Source]
    presets: list[PresetFigures]


class FilledWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload without gaps: lengths, arrivals (never `users`) and limits."""

    workload: Workload
    slo: Slo
    assumptions: tuple[str, ...]
    """What was taken for granted, one sentence each."""
    arrivals_given: bool
    """Whether the caller stated the load; else the preset's nominal one stands in."""
    limits_given: bool
    """Whether the caller stated limits; else the preset's usual ones stand in."""


@functools.cache
def _file() -> _File:
    text = resources.files("service.tuning").joinpath("data/presets.json").read_bytes()
    return msgspec.json.decode(text, type=_File)


def preset_figures(name: Preset) -> PresetFigures:
    """Return the figures behind one preset."""
    return next(preset for preset in _file().presets if preset.name == name)


def all_presets() -> tuple[PresetDescription, ...]:
    """Return every preset with its workload, usual targets and sources."""
    sources = _file().sources
    return tuple(
        PresetDescription(
            name=preset.name,
            title=preset.title,
            workload=_preset_workload(preset),
            slo=_preset_slo(preset),
            source=[sources[key] for key in preset.source],
        )
        for preset in _file().presets
    )


def fill_workload(workload: Workload | None, slo: Slo | None) -> FilledWorkload:
    """Return the workload with its gaps filled from a preset, and what was assumed.

    What is given overrides the preset. Without a preset the lengths of `chat` fill the gaps;
    its latency targets apply only when nothing at all was said about lengths.

    Raises:
        InvalidRequest: A value contradicts itself or another one; the pointer names it.
    """
    given = workload or Workload()
    check_workload(given)
    preset = preset_figures(given.preset or _FALLBACK)
    said: list[str] = _preset_sentences(given, preset)
    filled = _fill_lengths(given, preset, said)
    filled = _fill_arrivals(filled, given, preset, said, slo=slo)
    check_workload(filled)
    return FilledWorkload(
        workload=filled,
        slo=_fill_slo(slo, given, preset, said),
        assumptions=tuple(said),
        arrivals_given=given.arrivals is not None or _wanted_rate(filled, preset, slo) is not None,
        limits_given=slo is not None,
    )


def users_to_requests_per_s(users: Users, *, preset: Preset) -> float:
    """Return the peak rate that this many people cause, requests per second.

    users x active share x requests per active user and minute / 60 x peak factor; what is not
    given comes from the use case's habits.
    """
    habits = preset_figures(preset).users
    return (
        users.users
        * _or(users.active_fraction, habits.active_fraction)
        * _or(users.requests_per_active_user_per_min, habits.requests_per_active_user_per_min)
        / 60
        * _or(users.peak_factor, habits.peak_factor)
    )


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


def _preset_workload(preset: PresetFigures) -> Workload:
    return Workload(
        preset=preset.name,
        prompt_tokens=preset.prompt_tokens,
        output_tokens=preset.output_tokens,
        arrivals=preset.arrivals,
        shared_prefix_tokens=preset.shared_prefix_tokens,
    )


def _preset_slo(preset: PresetFigures) -> Slo:
    return Slo(
        targets=list(preset.targets),
        max_preemptions_per_request=DEFAULT_MAX_PREEMPTIONS_PER_REQUEST,
    )


def _states_lengths(given: Workload) -> bool:
    return (
        given.prompt_tokens is not None
        or given.output_tokens is not None
        or isinstance(given.arrivals, Trace)
    )


def _preset_sentences(given: Workload, preset: PresetFigures) -> list[str]:
    if given.preset is not None:
        return []
    if not _states_lengths(given):
        return [f"No workload was given: the preset {preset.name} stands in ({preset.title})."]
    return []


def _fill_lengths(given: Workload, preset: PresetFigures, said: list[str]) -> Workload:
    """Return the workload with both lengths and the shared prefix set."""
    if isinstance(given.arrivals, Trace):
        return _fill_from_trace(given, given.arrivals, said)
    changes: dict[str, object] = {}
    for field in ("prompt_tokens", "output_tokens"):
        if getattr(given, field) is None:
            lengths: LognormalLength = getattr(preset, field)
            changes[field] = lengths
            noun = field.replace("_", " ")
            said.append(
                f"{noun.capitalize()} assumed from the preset {preset.name}: "
                f"mean {lengths.mean:g}, 99th percentile {lengths.p99:g}."
            )
    if given.shared_prefix_tokens is None:
        changes["shared_prefix_tokens"] = _assumed_prefix(given, preset, said)
    return msgspec.structs.replace(given, **changes)


def _assumed_prefix(given: Workload, preset: PresetFigures, said: list[str]) -> int:
    """Return the preset's shared prefix, or none when the prompts are the caller's own."""
    if given.prompt_tokens is not None or preset.shared_prefix_tokens == 0:
        return 0
    said.append(
        f"The first {preset.shared_prefix_tokens} prompt tokens are assumed to be shared by all "
        f"requests (preset {preset.name})."
    )
    return preset.shared_prefix_tokens


def _fill_from_trace(given: Workload, trace: Trace, said: list[str]) -> Workload:
    """Return the workload with the trace's own lengths; a trace knows them request by request."""
    if given.prompt_tokens is not None or given.output_tokens is not None:
        said.append("Lengths come from the trace; the separate lengths are not used.")
    order = sorted(range(len(trace.at_s)), key=trace.at_s.__getitem__)
    if order != list(range(len(order))):
        said.append("The trace was put in order of arrival.")
        trace = Trace(
            at_s=[trace.at_s[i] for i in order],
            prompt_tokens=[trace.prompt_tokens[i] for i in order],
            output_tokens=[trace.output_tokens[i] for i in order],
        )
    return msgspec.structs.replace(
        given,
        prompt_tokens=SampleLengths(tokens=trace.prompt_tokens),
        output_tokens=SampleLengths(tokens=trace.output_tokens),
        arrivals=trace,
        shared_prefix_tokens=given.shared_prefix_tokens or 0,
    )


def _wanted_rate(filled: Workload, preset: PresetFigures, slo: Slo | None) -> float | None:
    """Return the request rate that a floor of throughput asks for, where arrivals are open."""
    if slo is None or not isinstance(preset.arrivals, PoissonArrivals | GammaArrivals):
        return None
    wanted = [slo.min_requests_per_s] if slo.min_requests_per_s is not None else []
    if slo.min_output_tokens_per_s is not None and filled.output_tokens is not None:
        wanted.append(slo.min_output_tokens_per_s / mean_tokens(filled.output_tokens))
    return min(max(wanted), _MOST_REQUESTS_PER_S) if wanted else None


def _fill_arrivals(
    filled: Workload,
    given: Workload,
    preset: PresetFigures,
    said: list[str],
    *,
    slo: Slo | None,
) -> Workload:
    """Return the workload with arrivals that a simulator understands."""
    wanted = _wanted_rate(filled, preset, slo)
    if given.arrivals is None and wanted is not None:
        said.append(
            f"No arrivals were given: {wanted:.3g} requests/s arrive, the least that is asked for."
        )
        return msgspec.structs.replace(filled, arrivals=PoissonArrivals(requests_per_s=wanted))
    if given.arrivals is None:
        said.append(
            f"No arrivals were given: {_describe(preset.arrivals)}, as in the preset {preset.name}."
        )
        return msgspec.structs.replace(filled, arrivals=preset.arrivals)
    if isinstance(given.arrivals, Users):
        rate = _rate_of_users(given.arrivals, preset, said)
        return msgspec.structs.replace(filled, arrivals=PoissonArrivals(requests_per_s=rate))
    return filled


def _rate_of_users(users: Users, preset: PresetFigures, said: list[str]) -> float:
    rate = users_to_requests_per_s(users, preset=preset.name)
    if not rate > 0 or not math.isfinite(rate):
        raise InvalidRequest(
            f"{users.users} users at these habits send no request",
            pointer="/workload/arrivals/active_fraction",
        )
    active = _or(users.active_fraction, preset.users.active_fraction)
    per_min = _or(
        users.requests_per_active_user_per_min, preset.users.requests_per_active_user_per_min
    )
    peak = _or(users.peak_factor, preset.users.peak_factor)
    people = "1 user" if users.users == 1 else f"{users.users:,} users"
    shown = f"{rate:,.0f}" if rate >= _GROUPED_FROM else f"{rate:.3g}"
    said.append(
        f"{people} x {active:g} active x {per_min:g} requests per active user and "
        f"minute / 60 x peak {peak:g} = {shown} requests/s at the peak."
    )
    return rate


def _describe(arrivals: Arrivals) -> str:
    match arrivals:
        case PoissonArrivals():
            return f"{arrivals.requests_per_s:g} requests/s"
        case GammaArrivals():
            return f"{arrivals.requests_per_s:g} requests/s, burstiness {arrivals.burstiness:g}"
        case ClosedLoop():
            return f"{arrivals.max_concurrency} requests in flight"
        case BatchArrivals():
            return f"{arrivals.num_requests} requests at once"
        case Users():
            return f"{arrivals.users} users"
        case Trace():
            return f"{len(arrivals.at_s)} recorded requests"


def _fill_slo(slo: Slo | None, given: Workload, preset: PresetFigures, said: list[str]) -> Slo:
    """Return the limits: those given, or the preset's when it was chosen or stands in."""
    if slo is not None:
        if slo.max_preemptions_per_request is not None:
            return slo
        return msgspec.structs.replace(
            slo, max_preemptions_per_request=DEFAULT_MAX_PREEMPTIONS_PER_REQUEST
        )
    if given.preset is None and _states_lengths(given):
        said.append("No targets were given: no latency limit is assumed.")
        return Slo(max_preemptions_per_request=DEFAULT_MAX_PREEMPTIONS_PER_REQUEST)
    if preset.targets:
        targets = ", ".join(
            f"{t.metric} p{t.percentile} below {t.limit_ms:g} ms" for t in preset.targets
        )
        said.append(f"No targets were given: those of the preset {preset.name} apply ({targets}).")
    return _preset_slo(preset)
