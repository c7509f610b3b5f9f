"""What the parts of a step cost by the data sheet, and which factors bear on them."""

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.latency import price
from service.tuning.latency.work import StepWork, compute_format, step_work
from service.tuning.models.catalogue import resolve_model


def work_of(model: str, gpu: str, *, gpus: int = 1) -> StepWork:
    node, _ = resolve_hardware(Hardware(gpu=gpu, gpus_per_node=gpus))
    spec = resolve_model(ModelRef(id=model))
    version = parse_version("0.20.2")
    config = effective_config(
        EngineConfig(tensor_parallel_size=gpus), spec=spec, node=node, version=version
    )
    return step_work(spec=spec, node=node, config=config, version=version)


def test_only_consumer_parts_are_rated_at_half_speed() -> None:
    """Their peak with 32-bit sums is half of the chip's, and kernels come closer to it."""

    def is_halved(gpu: str) -> bool:
        terms = work_of("Qwen/Qwen3-8B", gpu).terms
        return any("compute.half_rate" in term.factors for term in terms)

    assert is_halved("RTX 5090")
    assert not is_halved("RTX PRO 6000")
    assert not is_halved("H100 80GB")


def test_four_bit_floats_compute_natively_where_the_part_has_units_for_them() -> None:
    """MI355X multiplies MXFP4 as it is; MI300X and A100 unpack it to 16 bit."""
    rates = {}
    for name in ("MI355X", "MI300X", "A100 80GB"):
        node, _ = resolve_hardware(Hardware(gpu=name))
        rates[name] = compute_format("mxfp4", node.gpu)[1] / (node.gpu.dense_16bit_tflops * 1e12)

    assert rates["MI355X"] > 2
    assert rates["MI300X"] == rates["A100 80GB"] == 1


def test_sparse_attention_on_hopper_pads_few_heads() -> None:
    """With eight GPUs a rank has 16 of 128 heads; FlashMLA's kernels work on 64 of them."""

    def per_pair(gpu: str) -> float:
        work = work_of("deepseek-ai/DeepSeek-V3.2", gpu, gpus=8)
        node, _ = resolve_hardware(Hardware(gpu=gpu))
        terms = (term for term in work.terms if term.component == price.WINDOW_PAIR)
        return sum(term.seconds for term in terms) * node.gpu.dense_16bit_tflops

    assert per_pair("H200") == 4 * per_pair("B200")
