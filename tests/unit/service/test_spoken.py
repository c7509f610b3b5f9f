"""At the command line, fields and routes of the API are called by what the command line has."""

import re

import pytest

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from service.cli.spoken import spoken
from service.hub import HubOptions, make_hub_resolver
from service.store.models import ModelRecord
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.models.catalogue import resolve_model

_OF_THE_API = re.compile(r"(GET|PUT|POST) /|when_no_worker|Hub look-up")


def _refusal_of_model() -> str:
    with pytest.raises(TuningError) as refused:
        resolve_model(ModelRef(id="nobody/none"))
    return refused.value.message


def _refusal_of_gpu() -> str:
    with pytest.raises(TuningError) as refused:
        resolve_hardware(Hardware(gpu="nothing"))
    return refused.value.message


@pytest.mark.parametrize("message", [_refusal_of_model(), _refusal_of_gpu()])
def test_no_route_is_named_to_who_has_none(message: str) -> None:
    """The very refusals of the core lose their routes, however they are worded."""
    assert _OF_THE_API.search(message)

    assert not _OF_THE_API.search(spoken(message, arguments=["recommend"]))


def test_an_unknown_model_can_be_looked_up() -> None:
    """`--hub` is what the command line has; a service that is asked has its own routes."""
    assert "--hub" in spoken(_refusal_of_model(), arguments=["recommend", "--model", "x"])
    assert "PUT /models" in spoken(_refusal_of_model(), arguments=["recommend", "--server", "x"])


def test_waiting_for_a_worker_is_an_option() -> None:
    """The command that proves a fresh answer has no such option; it names the one that does."""
    refusal = 'No live worker listens on a. Or let it wait: "when_no_worker": "wait".'

    assert spoken(refusal, arguments=["validate", "x"]).endswith("let it wait: --queue-up.")
    assert "setpoint validate ID --queue-up" in spoken(
        refusal, arguments=["recommend", "--wait-for-validation", "quick"]
    )


@pytest.mark.parametrize(
    ("message", "arguments", "said"),
    [
        ("/workload/preset: no", ["--preset", "x"], "--preset: no"),
        ("/workload/preset: no", ["--preset=x"], "--preset: no"),
        ("/workload/preset: no", ["-f", "x.json"], "/workload/preset: no"),
        ("/engine/version: no", ["--to", "x"], "--to: no"),
        ("/slo/targets/0/limit_ms: no", ["--tpot-ms", "1"], "--tpot-ms: no"),
        ("/slo/targets/1/limit_ms: no", ["--ttft-ms", "1", "--tpot-ms", "1"], "--tpot-ms: no"),
    ],
)
def test_a_field_is_called_by_the_option_that_was_written(
    message: str, arguments: list[str], said: str
) -> None:
    """Where the value came from a file, its place in the file is what helps."""
    assert spoken(message, arguments=arguments) == said


class _NothingKept:
    """No config was read lately, and none is kept."""

    def find_from_hub(self, model_id: str) -> None:
        """Return nothing."""

    def remember_from_hub(self, record: ModelRecord) -> None:
        """Forget it."""


def test_the_hub_s_own_refusal_names_no_route() -> None:
    """With `--hub` the way that is left is the model's config."""
    resolve = make_hub_resolver(
        resolve_model, cache=_NothingKept(), options=HubOptions(is_offline=True)
    )

    with pytest.raises(TuningError) as refused:
        resolve(ModelRef(id="nobody/none-at-all"))

    assert _OF_THE_API.search(refused.value.message)
    assert not _OF_THE_API.search(spoken(refused.value.message, arguments=["recommend", "--hub"]))
