"""What our facts say of values is what vLLM 0.33.0 itself says."""

import pytest

from api_schemas.base import Json
from service.tuning.engine.accepted_values import value_obstacle
from service.tuning.engine.facts import is_known
from service.tuning.engine.grammar import grammar
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.versions import NEWEST
from tests.vllm.conftest import Ask

pytestmark = pytest.mark.vllm

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
UNCHECKED_PORTS = {"port", "grpc_port", "master_port", "data_parallel_supervisor_port"}
"""vLLM hands them to the operating system, whose ports have 16 bits."""
READ_LATER = {
    *("elastic_ep_max_dp_size", "max_lora_cls_labels", "mm_encoder_fp8_scale_save_margin"),
    *("mm_ipc_gpu_memory_gb", "mm_processor_cache_gb", "mm_shm_cache_max_object_size_mb"),
    "video_pruning_rate",
}
"""Bounds of objects that vLLM makes only for adapters, experts or images in use."""
RANGES = [
    name
    for name in read_facts("values")["ranges"]
    if is_known(name, NEWEST) and name not in UNCHECKED_PORTS | READ_LATER
]
WRONG_KINDS: dict[str, Json] = {
    "port": "abc",
    "seed": "1.5",
    "compilation_config": "x",
    "kv_transfer_config": "x",
    "video_pruning_rate": "much",
}


@pytest.mark.parametrize("name", RANGES)
def test_numbers_out_of_our_bounds_are_refused(ask: Ask, name: str) -> None:
    """A number just below the least is refused by the parser or by the config objects."""
    bounds = read_facts("values")["ranges"][name]
    outside = bounds["above"] if "above" in bounds else bounds["at_least"] - 1
    flag = grammar()[name].flag

    answer = ask(["serve", MODEL, f"{flag}={outside}"], model="dense")

    assert value_obstacle(name, outside, version=NEWEST, given={}) is not None
    assert answer["stage"] != "accepted"
    assert name in answer["message"] or flag in answer["message"], answer["message"]


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_values_of_another_kind_are_refused(ask: Ask, name: str) -> None:
    """A word for a number or an object does not pass the parser."""
    value = WRONG_KINDS[name]

    answer = ask(["serve", MODEL, f"{grammar()[name].flag}={value}"])

    assert value_obstacle(name, value, version=NEWEST, given={}) is not None
    assert answer["stage"] == "parser"


@pytest.mark.parametrize("name", ["attention_backend", "distributed_executor_backend"])
def test_values_outside_our_lists_are_refused(ask: Ask, name: str) -> None:
    """A word that is in none of our lists does not pass the config objects."""
    answer = ask(["serve", MODEL, f"{grammar()[name].flag}=evil"], model="dense")

    assert value_obstacle(name, "evil", version=NEWEST, given={}) is not None
    assert answer["stage"] != "accepted"
