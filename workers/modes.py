"""The modes of a validation that measure one setting: boot, quick, soak."""

import math

from api_schemas.workload import ClosedLoop
from workers.experiment import Experiment, max_model_len
from workers.run import OutOfTime
from workers.session import Session
from workers.traffic import Load, Request

_REPEATS = 2
_SOAK_OVERFILL = 1.5
"""Conversations offered over what the KV cache holds at full length."""
_SOAK_TURNS = 3
_SOAK_OUTPUT_TOKENS = 16
_SOAK_MOST = 4096


def boot(experiment: Experiment) -> None:
    """Start the recommendation and read what it says of its memory."""
    with experiment.recommended(progress=0.2):
        pass


def quick(experiment: Experiment) -> None:
    """Offer the workload as it was asked for, twice."""
    run = experiment.run
    with experiment.recommended() as session:
        seconds = run.remaining_s / (_REPEATS + 1)
        for repeat in range(_REPEATS):
            try:
                found = experiment.measure(
                    session,
                    experiment.arrivals,
                    label=f"quick-{repeat + 1}",
                    seconds=seconds,
                    progress=0.3 + 0.6 * repeat / _REPEATS,
                )
            except OutOfTime:
                if not experiment.findings.judged:
                    raise
                run.note(f"The minutes ended in repeat {repeat + 1} of {_REPEATS}.")
                return
            experiment.findings.judged.append(found)


def soak(experiment: Experiment) -> None:
    """Fill the KV cache with conversations near the longest length, turn after turn."""
    with experiment.recommended() as session:
        load = _conversations(experiment, session)
        experiment.run.note(
            "The prediction beside the soak counts no text of earlier turns as cached."
        )
        experiment.offer(session, load, label="soak", progress=0.4)


def _conversations(experiment: Experiment, session: Session) -> Load:
    """Return growing prompts: each turn holds the text of the one before."""
    longest = max_model_len(session, experiment.findings.startup_prediction)
    facts = experiment.findings.startup
    fits = facts.max_concurrency if facts and facts.max_concurrency else 1.0
    number = min(max(2, math.ceil(_SOAK_OVERFILL * fits)), _SOAK_MOST)
    output = max(1, min(_SOAK_OUTPUT_TOKENS, longest // 8))
    part = max(1, (longest - output) // _SOAK_TURNS)
    seed = experiment.seed()
    requests = tuple(
        Request(
            at_s=0.0,
            prompt_tokens=turn * part,
            output_tokens=output,
            chunks=tuple((seed * _SOAK_MOST + talk) * 16 + step for step in range(turn)),
        )
        for turn in range(1, _SOAK_TURNS + 1)
        for talk in range(number)
    )
    return Load(
        arrivals=ClosedLoop(max_concurrency=number),
        prompt_tokens=None,
        output_tokens=None,
        shared_prefix_tokens=0,
        num_requests=len(requests),
        seed=seed,
        requests=requests,
        chunk_tokens=part,
    )
