"""A caller with a generated client: asks, reads back, and is refused. Prints what it saw."""

import json
import sys

from httpx import Timeout
from setpoint_client import AuthenticatedClient
from setpoint_client.api.advice import (
    create_recommendation,
    get_recommendation,
    get_recommendation_file,
    list_recommendations,
)
from setpoint_client.models import (
    Hardware,
    LatencyTarget,
    ModelRef,
    PoissonArrivals,
    Problem,
    Recommendation,
    Slo,
    TuningRequest,
    Workload,
)


def _asked(model: str) -> TuningRequest:
    return TuningRequest(
        model=ModelRef(id=model),
        hardware=Hardware(gpu="H100"),
        workload=Workload(
            preset="chat", arrivals=PoissonArrivals(kind="poisson", requests_per_s=4.0)
        ),
        slo=Slo(targets=[LatencyTarget(metric="ttft", percentile=95, limit_ms=500.0)]),
    )


def main(base_url: str, key: str) -> None:
    """Ask the service at this address."""
    with AuthenticatedClient(base_url, token=key, timeout=Timeout(120.0)) as client:
        made = create_recommendation.sync(client=client, body=_asked("Qwen/Qwen3-8B"))
        assert isinstance(made, Recommendation)
        read = get_recommendation.sync(made.id, client=client)
        assert isinstance(read, Recommendation)
        file = get_recommendation_file.sync(made.id, "serve.sh", client=client)
        page = list_recommendations.sync(client=client, limit=1)
        refused = create_recommendation.sync_detailed(client=client, body=_asked("no/body"))
    assert isinstance(refused.parsed, Problem)
    arrivals = read.request.workload.arrivals
    assert isinstance(arrivals, PoissonArrivals)
    seen = {
        "same": read == made,
        "id": read.id,
        "rate": arrivals.requests_per_s,
        "settings": read.config.to_dict(),
        "file": file,
        "listed": [item.id for item in getattr(page, "items", [])],
        "problem": [refused.status_code, refused.parsed.code, refused.parsed.errors[0].pointer],
    }
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
