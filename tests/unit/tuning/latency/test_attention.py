"""What attention costs beyond the work by the data sheet."""

import pytest

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.latency import price
from service.tuning.latency.coefficients import bundled_coefficients
from service.tuning.latency.work import price_array, step_work
from service.tuning.models.catalogue import resolve_model


def seconds_per_pair(model: str, gpu: str) -> float:
    """Return the fitted price of one query-key pair over its operations by the data sheet."""
    node, _ = resolve_hardware(Hardware(gpu=gpu, gpus_per_node=1))
    spec = resolve_model(ModelRef(id=model))
    version = parse_version("0.19.0")
    config = effective_config(EngineConfig(), spec=spec, node=node, version=version)
    work = step_work(spec=spec, node=node, config=config, version=version)
    stated = sum(term.seconds for term in work.terms if term.component == price.PAIR)
    return float(price_array(work, bundled_coefficients())[price.PAIR] / stated)


@pytest.mark.parametrize("gpu", ["A100 80GB", "L40S", "RTX 5090"])
def test_sinks_without_a_kernel_of_their_own_make_long_prompts_slow(gpu: str) -> None:
    """Triton's attention runs where no faster kernel knows sinks."""
    with_sinks = seconds_per_pair("openai/gpt-oss-20b", gpu)

    assert with_sinks > 3 * seconds_per_pair("Qwen/Qwen3-8B", gpu)


@pytest.mark.parametrize("gpu", ["H100 80GB", "B200"])
def test_sinks_cost_nothing_where_a_kernel_knows_them(gpu: str) -> None:
    """FlashAttention 3 and the kernels of data-centre Blackwell take sinks along."""
    with_sinks = seconds_per_pair("openai/gpt-oss-20b", gpu)

    assert with_sinks == seconds_per_pair("Qwen/Qwen3-8B", gpu)
