"""What Setpoint recommends passes vLLM's own parser, over models, GPUs, loads and wishes."""

import pytest

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import Lora, ModelRef, Speculative
from api_schemas.recommendation import Constraints, Objective, TargetEngine, TuningRequest
from api_schemas.workload import Preset, Workload
from service.tuning.engine.argv import from_argv, to_argv
from service.tuning.engine.versions import NEWEST, parse_version
from service.tuning.errors import UnsupportedArchitecture
from service.tuning.models.catalogue import all_models
from service.tuning.recommend import recommend
from tests.unit.tuning.render.examples import VERSIONS
from tests.vllm.conftest import Ask

pytestmark = pytest.mark.vllm

PARTS = (("H100-SXM5-80GB", 8), ("A100-SXM4-80GB", 4), ("L40S", 2), ("H200", 8), ("L4", 1))
LOADS: tuple[Preset, ...] = ("chat", "rag", "batch", "realtime", "long_context", "agent")
WISHES: tuple[Objective, ...] = ("balanced", "latency", "throughput", "cost")
MODELS = [entry.id for entry in all_models()][::15]


def request(turn: int, model: ModelRef, **changes: Json) -> TuningRequest:
    """Return a request for one of the GPUs, loads and wishes, each in its turn."""
    gpu, count = PARTS[turn % len(PARTS)]
    values: dict[str, Json] = {
        "model": model,
        "hardware": Hardware(gpu=gpu, gpus_per_node=count),
        "workload": Workload(preset=LOADS[turn % len(LOADS)]),
        "objective": WISHES[turn % len(WISHES)],
        **changes,
    }
    return TuningRequest(**values)


LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SPECULATION = Speculative(method="ngram", num_tokens=3)
REQUESTS = [
    *(request(turn, ModelRef(id=name)) for turn, name in enumerate(MODELS)),
    request(0, ModelRef(id=LLAMA, lora=Lora(max_rank=32, max_adapters=4))),
    request(1, ModelRef(id=LLAMA, speculative=SPECULATION)),
    request(
        2,
        ModelRef(id=LLAMA),
        constraints=Constraints(pin=EngineConfig(block_size=32, performance_mode="throughput")),
    ),
]


@pytest.mark.parametrize("wanted", REQUESTS, ids=lambda r: f"{r.model.id}-{r.hardware.gpu}")
def test_what_is_recommended_is_accepted(ask: Ask, wanted: TuningRequest) -> None:
    """The recommended settings pass the real parser, whatever was asked for."""
    try:
        advice = recommend(wanted)
    except UnsupportedArchitecture as unknown:
        pytest.skip(unknown.message)

    answer = ask(to_argv(wanted.model.id, advice.config, NEWEST)[1:])

    assert answer["stage"] == "accepted", answer["message"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_recommended_for_a_release_is_known_there(version: str) -> None:
    """Older releases get only settings and values that they know."""
    release = parse_version(version)
    wanted = request(0, ModelRef(id=LLAMA), engine=TargetEngine(version=version))

    advice = recommend(wanted)

    assert from_argv(to_argv(LLAMA, advice.config, release), release).is_accepted
