"""How much work a simulated run would be, known before it starts."""

from api_schemas.workload import (
    BatchArrivals,
    GammaArrivals,
    PoissonArrivals,
    Trace,
    Workload,
)
from service.tuning.lengths import length_figures
from service.tuning.simulation.traffic import MAX_REQUESTS, OPEN_LOOP_REQUESTS

MOST_PROMPT_STEPS = 128_000
"""Of all requests together: about 0.05 s on one CPU, and an advice simulates dozens of runs."""


def is_too_fine(workload: Workload, *, token_budget: int, longest_chunk: int = 0) -> bool:
    """Return whether prompts are read in so many steps that a run is not worth its time.

    Counted from the load and the settings alone, so that the same request always gets the same
    kind of answer. `longest_chunk` 0 is no limit.
    """
    chunk = max(1, min(token_budget, longest_chunk or token_budget))
    return prompt_steps(workload, chunk_tokens=chunk) > MOST_PROMPT_STEPS


def prompt_steps(workload: Workload, *, chunk_tokens: int) -> float:
    """Return about how many steps the prompts of a run take together, one request at a time."""
    arrivals, prompts = workload.arrivals, workload.prompt_tokens
    if isinstance(arrivals, Trace):
        return sum(arrivals.prompt_tokens[:MAX_REQUESTS]) / chunk_tokens
    if prompts is None:
        return 0.0
    requests = OPEN_LOOP_REQUESTS
    if isinstance(arrivals, BatchArrivals | PoissonArrivals | GammaArrivals):
        requests = min(arrivals.num_requests or requests, MAX_REQUESTS)
    return requests * length_figures(prompts).mean_tokens / chunk_tokens
