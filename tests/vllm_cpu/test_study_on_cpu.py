"""A study on real vLLM: every trial is a server of its own, and the search outlives its worker."""

from typing import Any

import pytest

from tests.integration.worker_process import WorkerProcess
from tests.vllm_cpu.conftest import Prover

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

_TRIALS = 12
_KILLED_AFTER = 5
_SPACE = {
    "max_num_seqs": {"kind": "integers", "low": 2, "high": 64, "log": True},
    "max_num_batched_tokens": {"kind": "integers", "low": 256, "high": 2048, "step": 256},
}
_OBJECTIVES = [
    {"metric": "output_tokens_per_s", "direction": "maximize"},
    {"metric": "ttft_ms_p95", "direction": "minimize"},
]
_REQUEST = {
    "workload": {
        "prompt_tokens": 64,
        "output_tokens": 32,
        "arrivals": {"kind": "closed_loop", "max_concurrency": 16},
    },
    "slo": {"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 20_000}]},
    "constraints": {"pin": {"kv_cache_memory_bytes": 64 * 2**20, "max_model_len": 512}},
}


def test_a_study_outlives_its_worker_and_is_no_worse_than_the_defaults(
    prover: Prover, worker: WorkerProcess
) -> None:
    """Twelve trials around a `kill -9`: those that were done stay, and the best one is found."""
    address = prover.study(
        prover.recommend(**_REQUEST),
        space=_SPACE,
        objectives=_OBJECTIVES,
        max_trials=_TRIALS,
        max_minutes=60,
        trial_minutes=0.1,
    )
    before = prover.wait_for(address, lambda found: len(_complete(found)) >= _KILLED_AFTER)

    worker.kill()
    worker.start()
    record = prover.wait_for(address, lambda found: found["finished_at"])

    assert record["status"] == "succeeded", record
    assert record["attempt"] == 2
    trials = {trial["number"]: trial for trial in record["trials"]}
    assert all(trials[done["number"]] == done for done in _complete(before))
    assert len([trial for trial in trials.values() if trial["state"] != "pruned"]) == _TRIALS
    assert len(_complete(record)) == _TRIALS, [trial["reason"] for trial in trials.values()]
    _check_best(record, trials)
    assert worker.processes() == []


def _complete(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [trial for trial in record["trials"] if trial["state"] == "complete"]


def _check_best(record: dict[str, Any], trials: dict[int, dict[str, Any]]) -> None:
    """Return when the best trial meets the targets and serves as much as vLLM's defaults."""
    baseline, best = trials[record["baseline"]], trials[record["best"]]
    assert baseline["origin"] == "baseline"
    assert not set(_SPACE) & {name for name, v in baseline["config"].items() if v is not None}
    assert best["meets"]
    rate = "output_tokens_per_s"
    assert best["measured"][rate] >= baseline["measured"][rate] > 0
    assert record["best"] in record["pareto"]
    assert {trial["origin"] for trial in trials.values()} >= {"recommended", "prior", "search"}
