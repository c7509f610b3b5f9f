"""The schedule of real vLLM, recorded on a CPU, comes out of the simulated scheduler.

The file is written by `benchmarks/record_schedule.py`. A schedule hangs on who came before which
step, not on how long the steps took: every run is replayed on a clock that counts its own steps.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.tuning.engine.versions import parse_version
from service.tuning.latency import price as fields
from service.tuning.memory.plan import KvGroup
from service.tuning.simulation.limits import SchedulerLimits
from service.tuning.simulation.run import Run, run_scheduler
from service.tuning.simulation.traffic import Traffic

_FILE = Path(__file__).parent / "data" / "schedule_runs.json"
_RECORDED = json.loads(_FILE.read_text(encoding="utf-8"))
RUNS = _RECORDED["runs"]
_WHOLE_GATE_SINCE = "0.19.0"
_MANY = 20


def replay(recorded: dict[str, Any]) -> Run:
    """Simulate the recorded requests: one second for each step of the recorded run."""
    price = np.zeros(fields.PRICE_SIZE)
    price[fields.STEP] = 1.0
    price[fields.VERIFY] = price[fields.STAGES] = price[fields.EXPERT_RANKS] = 1.0
    price[fields.WINDOW] = 1 << 20
    settings, number = recorded["settings"], len(recorded["prompt_tokens"])
    blocks = recorded["num_gpu_blocks"]
    limits = SchedulerLimits(
        token_budget=settings["max_num_batched_tokens"],
        max_num_seqs=settings["max_num_seqs"],
        num_blocks=blocks - 1,
        groups=(KvGroup(kind="full", block_tokens=recorded["block_size"]),),
        admits_whole=parse_version(_RECORDED["vllm"].partition("+")[0]).since(_WHOLE_GATE_SINCE),
        watermark_blocks=int(settings["watermark"] * blocks),
        shared_prefix_tokens=0,
        chunked_prefill=True,
        caches_prefixes=settings["enable_prefix_caching"],
    )
    traffic = Traffic(
        prompts=np.array(recorded["prompt_tokens"], dtype=np.int64),
        outputs=np.array(recorded["output_tokens"], dtype=np.int64),
        arrivals=np.array(recorded["arrivals_steps"], dtype=np.float64),
        concurrency=0,
        weights=np.full(number, 1 / number),
        waves=0.0,
        offered_requests_per_s=None,
    )
    run = run_scheduler(price, traffic=traffic, limits=limits)
    assert run is not None
    return run


def recomputed_tokens(recorded: dict[str, Any]) -> int:
    """Tokens of all steps beyond one pass over every prompt and answer."""
    once: int = sum(recorded["prompt_tokens"]) + sum(recorded["output_tokens"])
    scheduled: int = sum(recorded["steps"]["tokens"])
    return scheduled - once + len(recorded["prompt_tokens"])


def test_the_recorded_runs_cover_what_decides_a_schedule() -> None:
    """Pools that preempt and not, several caps, several budgets, with and without caching."""
    settings = [run["settings"] for run in RUNS]

    assert len(RUNS) >= 6
    assert {run["preemptions"] > 0 for run in RUNS} == {True, False}
    assert len({one["max_num_seqs"] for one in settings}) >= 2
    assert len({one["max_num_batched_tokens"] for one in settings}) >= 2
    assert {one["enable_prefix_caching"] for one in settings} == {True, False}


@pytest.mark.parametrize("recorded", RUNS, ids=lambda run: run["name"])
def test_as_many_requests_are_preempted_and_run_at_once(recorded: dict[str, Any]) -> None:
    """Preemptions agree in sign, within 30 % where they are many; the peak of running is equal.

    Of requests that come one by one the log tells when the front end had them: the engine may
    have had them some steps later, and their peak is held to 20 %.
    """
    run = replay(recorded)

    measured = recorded["preemptions"]
    assert (run.preemptions > 0) == (measured > 0)
    if measured > _MANY:
        assert run.preemptions == pytest.approx(measured, rel=0.3)
    slack = 0.2 if recorded["load"]["kind"] == "poisson" else 0.0
    assert run.peak_running == pytest.approx(recorded["peak_running"], rel=slack, abs=0)


@pytest.mark.parametrize("recorded", RUNS, ids=lambda run: run["name"])
def test_as_much_is_computed_again_in_as_many_steps(recorded: dict[str, Any]) -> None:
    """Work that preemptions waste agrees within 30 % where it is much, the steps within 10 %."""
    run = replay(recorded)

    measured = recomputed_tokens(recorded)
    assert run.recomputed_tokens == pytest.approx(measured, rel=0.3, abs=500)
    assert run.steps == pytest.approx(len(recorded["steps"]["tokens"]), rel=0.1)
