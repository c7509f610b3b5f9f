"""Laws of the scheduler's simulation, over random loads, limits and prices."""

import importlib.util
import sys
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tuning.latency import price as fields
from service.tuning.memory.plan import KvGroup
from service.tuning.simulation.limits import SchedulerLimits
from service.tuning.simulation.run import FrontEnd, Run, run_scheduler
from service.tuning.simulation.traffic import Traffic

_REFERENCE = Path(__file__).parent.parent / "unit/tuning/simulation/reference_scheduler.py"
_LOADER = importlib.util.spec_from_file_location("reference_scheduler", _REFERENCE)
assert _LOADER is not None
assert _LOADER.loader is not None
reference_scheduler = importlib.util.module_from_spec(_LOADER)
sys.modules["reference_scheduler"] = reference_scheduler
_LOADER.loader.exec_module(reference_scheduler)

WINDOW = 24
Front = tuple[float, float, float, float, float]


def prices(**seconds: float) -> np.ndarray:
    """Prices of a step with every part that can matter."""
    values = np.zeros(fields.PRICE_SIZE)
    defaults = {
        "mlp_read": 4e-3,
        "mlp_token": 2e-5,
        "context": 3e-7,
        "window_context": 2e-7,
        "pair": 1e-8,
        "window_pair": 1e-8,
        "layer": 1e-3,
        "row": 1e-5,
        "launch": 2e-3,
    }
    for name, value in (defaults | seconds).items():
        values[fields.PRICE_FIELDS.index(name)] = value
    values[fields.VERIFY] = values[fields.STAGES] = values[fields.EXPERT_RANKS] = 1.0
    values[fields.MAX_CAPTURE] = 16.0
    values[fields.WINDOW] = WINDOW
    return values


def traffic(
    prompts: list[int], outputs: list[int], *, concurrency: int = 0, arrivals: object = None
) -> Traffic:
    number = len(prompts)
    return Traffic(
        prompts=np.array(prompts, dtype=np.int64),
        outputs=np.array(outputs, dtype=np.int64),
        arrivals=np.zeros(number) if arrivals is None else np.array(arrivals, dtype=np.float64),
        concurrency=concurrency,
        weights=np.full(number, 1 / number),
        waves=0.0,
        offered_requests_per_s=None,
    )


FULL = KvGroup(kind="full", block_tokens=16)
SLIDING = KvGroup(kind="sliding", block_tokens=16, cap_tokens=323, extra_blocks=1, reach_tokens=24)
NARROW = msgspec.structs.replace(SLIDING, cap_tokens=40)
RECURRENT = KvGroup(kind="recurrent", block_tokens=16, extra_blocks=2)


@st.composite
def loads(draw: st.DrawFn) -> Traffic:
    number = draw(st.integers(1, 25))
    prompts = draw(st.lists(st.integers(1, 120), min_size=number, max_size=number))
    outputs = draw(st.lists(st.integers(1, 40), min_size=number, max_size=number))
    if draw(st.booleans()):
        return traffic(prompts, outputs, concurrency=draw(st.integers(1, 12)))
    gaps = draw(st.lists(st.floats(0, 0.2), min_size=number, max_size=number))
    return traffic(prompts, outputs, arrivals=np.cumsum(gaps))


@st.composite
def bounds(draw: st.DrawFn, *, prefix: bool = True) -> SchedulerLimits:
    groups = draw(
        st.sampled_from([(FULL,), (SLIDING,), (FULL, NARROW), (FULL, SLIDING, RECURRENT)])
    )
    whole = sum(group.request_blocks(160) for group in groups)
    return SchedulerLimits(
        token_budget=draw(st.integers(8, 300)),
        max_num_seqs=draw(st.integers(1, 16)),
        num_blocks=draw(st.integers(whole + 2, 6 * whole)),
        groups=groups,
        admits_whole=draw(st.booleans()),
        watermark_blocks=draw(st.integers(0, 2)),
        shared_prefix_tokens=draw(st.sampled_from([0, 0, 16])) if prefix else 0,
        chunked_prefill=True,
        longest_chunk=draw(st.sampled_from([0, 0, 24])),
        caches_prefixes=draw(st.booleans()),
    )


fronts = st.sampled_from([(0.0, 0.0, 0.0, 0.0, 1.0), (0.02, 1e-5, 2e-3, 1e-5, 0.2)])


def front_end(front: Front) -> FrontEnd:
    latency, per_token, service, service_per_token, again_share = front
    return FrontEnd(
        latency_s=latency,
        latency_per_token_s=per_token,
        service_s=service,
        service_per_token_s=service_per_token,
        again_share=again_share,
    )


def simulate(load: Traffic, limits: SchedulerLimits, front: Front, **options: int) -> Run | None:
    return run_scheduler(
        prices(), traffic=load, limits=limits, front_end=front_end(front), **options
    )


def reference(load: Traffic, limits: SchedulerLimits, front: Front) -> tuple[object, object]:
    from service.tuning.simulation.kernel import step_seconds

    batch_prices = prices()
    groups = [tuple(int(v) for v in row) for row in limits.group_array()]
    return reference_scheduler.run(
        step_seconds=lambda batch: step_seconds(batch_prices, np.array(batch, dtype=np.float64)),
        limits=limits,
        groups=groups,
        front=front,
        window=WINDOW,
        prompts=load.prompts,
        outputs=load.outputs,
        arrivals=load.arrivals,
        concurrency=load.concurrency,
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(load=loads(), limits=bounds(), front=fronts)
def test_skipping_steps_changes_nothing(
    load: Traffic, limits: SchedulerLimits, front: Front
) -> None:
    """The kernel that jumps over equal steps agrees with one step after the other."""
    run = simulate(load, limits, front)
    engine, requests = reference(load, limits, front)

    assert (run is None) == (requests is None)
    if run is None:
        return
    expected = np.array([[r.sent, r.reached, r.scheduled, r.first, r.end] for r in requests])
    np.testing.assert_allclose(run.times, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(run.marks[:, 3], [r.preemptions for r in requests])
    assert run.steps == engine.steps
    assert engine.used_plus_free == {limits.num_blocks}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(load=loads(), limits=bounds(), front=fronts)
def test_every_request_ends_once_and_in_order(
    load: Traffic, limits: SchedulerLimits, front: Front
) -> None:
    """Sent, reached, scheduled, first token and end follow each other for every request."""
    run = simulate(load, limits, front)

    if run is None:
        return
    assert (run.times[:, 4] > 0).all()
    assert (np.diff(run.times, axis=1) >= -1e-8).all()
    assert run.duration_s == run.times[:, 4].max()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(load=loads(), limits=bounds(), front=fronts)
def test_the_clock_never_goes_back(load: Traffic, limits: SchedulerLimits, front: Front) -> None:
    """Events follow each other without gap or overlap."""
    run = simulate(load, limits, front, max_events=5000)

    if run is None:
        return
    starts, ends = run.events[:, 1], run.events[:, 2]
    assert (ends >= starts).all()
    np.testing.assert_allclose(starts[1:], ends[:-1], atol=1e-8)
    assert run.peak_used_blocks <= limits.num_blocks


@settings(max_examples=40, deadline=None, derandomize=True)
@given(load=loads(), limits=bounds(), front=fronts)
def test_the_same_load_gives_the_same_bytes(
    load: Traffic, limits: SchedulerLimits, front: Front
) -> None:
    """Two runs of one load agree to the last bit."""
    one, two = simulate(load, limits, front), simulate(load, limits, front)

    assert (one is None) == (two is None)
    if one is not None:
        assert one.times.tobytes() == two.times.tobytes()
        assert one.gaps.tobytes() == two.gaps.tobytes()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(load=loads(), limits=bounds(prefix=False), front=fronts)
def test_every_token_is_counted_once_in_the_gaps(
    load: Traffic, limits: SchedulerLimits, front: Front
) -> None:
    """There are as many gaps as tokens after the first ones."""
    run = simulate(load, limits, front)

    if run is not None:
        assert run.gaps.sum() == (load.outputs - 1).sum()


@given(prompt=st.integers(1, 400), output=st.integers(2, 60), budget=st.integers(16, 512))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_one_request_alone_takes_its_chunks_and_its_steps(
    prompt: int, output: int, budget: int
) -> None:
    """A lonely request takes the steps of its chunks, then one step per further token."""
    from service.tuning.simulation.kernel import step_seconds
    from service.tuning.simulation.pool import window_pairs

    limits = SchedulerLimits(
        token_budget=budget,
        max_num_seqs=4,
        num_blocks=1000,
        groups=(FULL,),
        admits_whole=True,
        watermark_blocks=0,
        shared_prefix_tokens=0,
        chunked_prefill=True,
    )
    values = prices()
    expected, done = 0.0, 0
    while done < prompt:
        chunk = min(budget, prompt - done)
        pairs = chunk * done + chunk * (chunk + 1) / 2
        rows = float(done + chunk == prompt)
        batch = [0, chunk, rows, 0, 0, pairs, window_pairs(done, chunk, WINDOW)]
        expected += step_seconds(values, np.array(batch, dtype=np.float64))
        done += chunk
    first = expected
    for token in range(1, output):
        known = prompt + token
        batch = [1, 0, 1, known, min(known, WINDOW), 0, 0]
        expected += step_seconds(values, np.array(batch, dtype=np.float64))

    run = simulate(traffic([prompt], [output], concurrency=1), limits, (0.0,) * 5)

    assert run is not None
    np.testing.assert_allclose(run.times[0, 3:], [first, expected], rtol=1e-9)


@given(seconds=st.lists(st.floats(0, 1), min_size=24, max_size=24), batch=st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_shares_of_a_step_add_up_to_it(seconds: list[float], batch: list[float]) -> None:
    """The parts of a step's time add up to the time, and none is negative."""
    from service.tuning.simulation.kernel import step_seconds, step_shares

    values = prices(**dict(zip(fields.PRICE_FIELDS, seconds, strict=True)))
    values[fields.LOG_MISS] = -0.03
    counts = [batch.draw(st.integers(0, 5000)) for _ in fields.BATCH_FIELDS]
    features = np.array(counts, dtype=np.float64)
    shares = np.zeros(fields.NUM_PRICES)

    total = step_shares(values, features, shares)

    assert (shares >= 0).all()
    np.testing.assert_allclose(total, step_seconds(values, features), rtol=1e-9)
    np.testing.assert_allclose(shares.sum(), total, rtol=1e-9)


@given(batch=st.lists(st.integers(0, 4000), min_size=7, max_size=7), more=st.integers(0, 6))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_more_work_never_takes_less_time(batch: list[float], more: int) -> None:
    """One more token, row, pair or token of context never makes a step shorter."""
    from service.tuning.simulation.kernel import step_seconds

    values = prices(launch=0.0)
    larger = list(batch)
    larger[more] += 1

    before = step_seconds(values, np.array(batch, dtype=np.float64))
    after = step_seconds(values, np.array(larger, dtype=np.float64))

    is_padded = batch[0] > 0 and batch[1] == 0 and more == 1
    assert after >= before - (0.0 if not is_padded else 1e-3)
