"""`setpoint studies` against a service with a worker of its own and a fake `vllm`."""

import json
from collections.abc import Iterator

import pytest

from service.cli.exit_codes import FAIL, INCONCLUSIVE, USAGE
from tests.integration.service_process import ServiceProcess
from tests.integration.setpoint_command import setpoint
from tests.integration.test_validate_command import ServiceWithWorker
from tests.integration.test_validations import request_for
from tests.integration.worker_process import FAKE, until

pytestmark = pytest.mark.slow

_STUDY = {
    "space": {"max_num_seqs": {"kind": "choices", "values": [2, 4, 8, 64]}},
    "max_trials": 2,
    "max_minutes": 10,
    "trial_minutes": 0.1,
}
_OUT_OF_REACH = {"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 0.001}]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    started = ServiceWithWorker(
        tmp_path_factory.mktemp("data"),
        VLLM_ENVS=str(FAKE),
        WORKER_NODE="own",
        HUB_LOOKUP="false",
    )
    with started:
        until(lambda: started.client.get("/workers").json()["items"], "the worker")
        yield started


def _recommendation(service: ServiceProcess, **changes: object) -> str:
    answer = service.client.post("/recommendations", json=request_for("tiny", **changes))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_a_study_is_created_followed_and_shown(service: ServiceProcess) -> None:
    """The search ends with 0 when a trial meets the targets; later it can be asked for again."""
    server = ("--server", service.base_url)
    started = setpoint(
        *("studies", "create", "-f", "-", "--recommendation", _recommendation(service)),
        *("--json", *server),
        stdin=json.dumps(_STUDY),
    )
    assert started.returncode == 0, started.stderr
    identifier = json.loads(started.stdout)["id"]

    waited = setpoint("studies", "wait", identifier, *server)
    shown = setpoint("studies", "get", identifier, "--json", *server)
    listed = setpoint("studies", "list", *server)

    assert waited.returncode == 0, waited.stderr
    assert "succeeded, 100%" in waited.stdout
    assert "left to vLLM" in next(row for row in waited.stdout.splitlines() if "baseline" in row)
    assert "best" in waited.stdout
    record = json.loads(shown.stdout)
    assert (record["status"], len(record["trials"])) == ("succeeded", 2)
    assert identifier in listed.stdout


def test_the_end_of_a_study_decides_the_exit_code(service: ServiceProcess) -> None:
    """1 when no trial meets the targets, 3 when it was cancelled, 2 when it cannot be asked for."""
    server = ("--server", service.base_url)
    out_of_reach = json.dumps(
        _STUDY | {"recommendation_id": _recommendation(service, slo=_OUT_OF_REACH)}
    )

    missed = setpoint("studies", "create", "-f", "-", "--wait", *server, stdin=out_of_reach)
    other = json.loads(
        setpoint("studies", "create", "-f", "-", "--json", *server, stdin=out_of_reach).stdout
    )
    service.client.delete(f"/studies/{other['id']}")
    cancelled = setpoint("studies", "wait", other["id"], *server)
    unknown = setpoint("studies", "get", "none", *server)

    assert missed.returncode == FAIL, missed.stdout
    assert cancelled.returncode == INCONCLUSIVE, cancelled.stdout
    assert unknown.returncode == USAGE
