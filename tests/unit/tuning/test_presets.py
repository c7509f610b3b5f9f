"""Presets, filled gaps, people turned into load, and refused nonsense."""

import msgspec
import pytest

from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import (
    FixedLength,
    HistogramLength,
    LognormalLength,
    PoissonArrivals,
    Preset,
    SampleLengths,
    Trace,
    UniformLength,
    Users,
    Workload,
)
from service.tuning.errors import InvalidRequest
from service.tuning.presets import all_presets, fill_workload, users_to_requests_per_s

NAMES: tuple[str, ...] = Preset.__args__  # type: ignore[attr-defined]


def test_every_preset_of_the_contract_is_described_once() -> None:
    """The eleven names of the contract are the eleven presets, each with a source."""
    presets = all_presets()

    assert tuple(preset.name for preset in presets) == NAMES
    assert all(preset.source for preset in presets)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_fills_itself(name: Preset) -> None:
    """A preset's own workload has no gap left, so filling it again assumes no length."""
    described = next(preset for preset in all_presets() if preset.name == name)

    filled = fill_workload(described.workload, described.slo)

    assert filled.workload == described.workload
    assert filled.slo == described.slo
    assert filled.assumptions == ()


def test_nothing_given_is_chat_and_says_so() -> None:
    """Without a workload the chat preset stands in, and a sentence says so."""
    filled = fill_workload(None, None)

    assert filled.workload.prompt_tokens == LognormalLength(mean=1155, p99=4142)
    assert any("chat" in sentence for sentence in filled.assumptions)
    assert not filled.arrivals_given


def test_what_is_given_overrides_the_preset() -> None:
    """A given length, load and limit replace the preset's."""
    workload = Workload(
        preset="rag", prompt_tokens=9000, arrivals=PoissonArrivals(requests_per_s=3)
    )
    slo = Slo(targets=[LatencyTarget(metric="e2el", percentile=99, limit_ms=9000)])

    filled = fill_workload(workload, slo)

    assert filled.workload.prompt_tokens == 9000
    assert filled.workload.arrivals == PoissonArrivals(requests_per_s=3)
    assert filled.slo.targets == slo.targets
    assert filled.arrivals_given


def test_own_lengths_without_a_preset_bring_no_foreign_targets() -> None:
    """Whoever states lengths but no preset gets no latency limit from chat."""
    filled = fill_workload(Workload(prompt_tokens=12_000, output_tokens=100), None)

    assert filled.slo.targets == []
    assert filled.slo.max_preemptions_per_request == 0.01


def test_users_become_a_rate() -> None:
    """500 RAG users: 20 % active, one request a minute, peak 2.5, so 500 x 0.2 / 60 x 2.5."""
    rate = users_to_requests_per_s(Users(users=500), preset="rag")

    assert rate == pytest.approx(500 * 0.2 * 1.0 / 60 * 2.5)


def test_filled_arrivals_are_never_users() -> None:
    """A simulator only ever sees rates, and the conversion is spelled out."""
    filled = fill_workload(
        Workload(preset="chat", arrivals=Users(users=60, active_fraction=1, peak_factor=1)),
        None,
    )

    assert isinstance(filled.workload.arrivals, PoissonArrivals)
    assert filled.workload.arrivals.requests_per_s == pytest.approx(0.4)
    assert any("60 users" in sentence for sentence in filled.assumptions)


def test_a_trace_brings_its_own_lengths_in_order_of_arrival() -> None:
    """Entries stay together when a trace is put in order."""
    trace = Trace(at_s=[2.0, 1.0], prompt_tokens=[20, 10], output_tokens=[200, 100])

    filled = fill_workload(Workload(arrivals=trace), None)

    assert filled.workload.prompt_tokens == SampleLengths(tokens=[10, 20])
    assert filled.workload.output_tokens == SampleLengths(tokens=[100, 200])


@pytest.mark.parametrize(
    ("workload", "pointer"),
    [
        (Workload(prompt_tokens=UniformLength(low=9, high=3)), "/workload/prompt_tokens/low"),
        (Workload(output_tokens=LognormalLength(mean=9, p99=3)), "/workload/output_tokens/p99"),
        (Workload(output_tokens=LognormalLength(mean=9, p99=900)), "/workload/output_tokens/p99"),
        (
            Workload(prompt_tokens=HistogramLength(upper=[1, 2], weight=[1.0])),
            "/workload/prompt_tokens/weight",
        ),
        (
            Workload(prompt_tokens=HistogramLength(upper=[1, 2], weight=[0.0, 0.0])),
            "/workload/prompt_tokens/weight",
        ),
        (
            Workload(prompt_tokens=HistogramLength(upper=[2, 2], weight=[1.0, 1.0])),
            "/workload/prompt_tokens/upper",
        ),
        (
            Workload(arrivals=Trace(at_s=[0.0], prompt_tokens=[1, 2], output_tokens=[1])),
            "/workload/arrivals/prompt_tokens",
        ),
        (
            Workload(arrivals=Trace(at_s=[0.0], prompt_tokens=[1], output_tokens=[1, 2])),
            "/workload/arrivals/output_tokens",
        ),
        (
            Workload(prompt_tokens=FixedLength(tokens=4000), max_request_tokens=2000),
            "/workload/max_request_tokens",
        ),
        (
            Workload(prompt_tokens=100, shared_prefix_tokens=200),
            "/workload/shared_prefix_tokens",
        ),
        (
            Workload(arrivals=Users(users=5, active_fraction=0.0)),
            "/workload/arrivals/active_fraction",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(workload: Workload, pointer: str) -> None:
    """A value that contradicts itself is refused, and the pointer names its field."""
    with pytest.raises(InvalidRequest) as refused:
        fill_workload(workload, None)

    assert refused.value.pointer == pointer


def test_filling_twice_changes_nothing() -> None:
    """A filled workload is complete: filling it again returns it as it is."""
    once = fill_workload(Workload(preset="agent"), None)

    twice = fill_workload(once.workload, once.slo)

    assert msgspec.structs.asdict(twice.workload) == msgspec.structs.asdict(once.workload)
    assert twice.slo == once.slo


def test_rates_of_many_users_are_written_in_full() -> None:
    """An assumption is a sentence for people: no powers of ten."""
    load = Workload(preset="chat", arrivals=Users(users=1_000_000))

    (said,) = [one for one in fill_workload(load, None).assumptions if "users x" in one]

    assert said.startswith("1,000,000 users")
    assert "e+" not in said
