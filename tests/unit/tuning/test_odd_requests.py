"""Requests that once got an answer which contradicted itself."""

from typing import Any

import pytest

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Constraints, TargetEngine, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import ClosedLoop, PoissonArrivals, Workload
from service.tuning.advice_parts import node_of_one
from service.tuning.errors import InvalidRequest
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.models.catalogue import resolve_model
from service.tuning.recommend import recommend


def test_a_copy_over_uneven_nodes_has_all_the_nodes_it_touches() -> None:
    """Twelve stages over nodes of eight GPUs take two nodes, not one."""
    node, _ = resolve_hardware(Hardware(gpu="RTX-4090", gpus_per_node=8, nodes=2))

    part = node_of_one(node, EngineConfig(tensor_parallel_size=1, pipeline_parallel_size=12))

    assert (part.gpus_per_node, part.nodes) == (8, 2)


def test_no_alternative_breaks_a_limit_that_the_pick_keeps() -> None:
    """What misses a limit is no choice beside an answer that keeps them all."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3.5-27B"),
            hardware=Hardware(gpu="a2-ultragpu-8g"),
            workload=Workload(preset="rag", arrivals=PoissonArrivals(requests_per_s=2)),
        )
    )

    assert advice.feasible
    offered = [other for other in advice.alternatives if other.label != "16-bit cache"]
    assert all(other.estimate.meets_slo for other in offered)


def test_a_release_before_the_model_is_named_as_the_obstacle() -> None:
    """A model that the release cannot load is no recommendation; the way out is a release."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="openai/gpt-oss-20b"),
            hardware=Hardware(gpu="H100-SXM5-80GB"),
            workload=Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=1)),
            engine=TargetEngine(version="0.9.2"),
        )
    )

    assert not advice.feasible
    assert advice.binding is not None
    assert advice.binding.constraint == "model"
    assert advice.nearest is not None
    assert advice.nearest.change == "use vLLM 0.10.1 or newer"
    assert "refuses GptOssForCausalLM" in advice.headline


@pytest.mark.parametrize("sizes", [[], [0, 8], [-1]])
def test_pinned_capture_sizes_are_batches(sizes: list[int]) -> None:
    """What no batch can be is refused where it was written."""
    pin = EngineConfig(cudagraph_capture_sizes=sizes)
    request = TuningRequest(
        model=ModelRef(id="Qwen/Qwen3-8B"),
        hardware=Hardware(gpu="L4"),
        constraints=Constraints(pin=pin),
    )

    with pytest.raises(InvalidRequest) as refused:
        recommend(request)

    assert refused.value.pointer == "/constraints/pin/cudagraph_capture_sizes"


def test_a_first_token_after_minutes_is_said_to_be_a_queue() -> None:
    """Without limits any wait is within them; the headline then says what the wait is."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="L4"),
            workload=Workload(
                prompt_tokens=4000, output_tokens=400, arrivals=ClosedLoop(max_concurrency=500)
            ),
        )
    )

    assert advice.feasible
    assert "most of it in the queue" in advice.headline


def test_the_cap_is_not_below_what_the_load_needs() -> None:
    """Five long answers at once under a cap of eight waited a minute; memory holds more."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="mistralai/Mistral-Small-3.2-24B-Instruct-2506"),
            hardware=Hardware(gpu="Standard_NC24ads_A100_v4"),
            workload=Workload(preset="chat", prompt_tokens=8000, output_tokens=4000),
            slo=Slo(targets=[LatencyTarget(metric="itl", percentile=90, limit_ms=50)]),
            engine=TargetEngine(version="0.24.0"),
        )
    )

    performance, default = advice.estimate.performance, advice.baseline.performance
    assert performance is not None
    assert default is not None
    assert performance.preemptions_per_request == 0
    assert performance.ttft_ms.p95 < 2 * default.ttft_ms.p95


@pytest.mark.parametrize(
    ("pin", "pointer"),
    [
        ({"speculative_config": {"method": 5}}, "speculative_config/method"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": "three"}},
            "speculative_config/num_speculative_tokens",
        ),
        ({"limit_mm_per_prompt": {"image": "x"}}, "limit_mm_per_prompt/image"),
        ({"limit_mm_per_prompt": {"image": 1.5}}, "limit_mm_per_prompt/image"),
    ],
)
def test_pinned_objects_hold_values_that_vllm_takes(pin: dict[str, Any], pointer: str) -> None:
    """A value of the wrong type inside a setting is refused where it was written."""
    with pytest.raises(InvalidRequest) as refused:
        recommend(
            TuningRequest(
                model=ModelRef(id="Qwen/Qwen3-8B"),
                hardware=Hardware(gpu="L4"),
                constraints=Constraints(pin=EngineConfig(**pin)),
            )
        )

    assert refused.value.pointer == f"/constraints/pin/{pointer}"


@pytest.mark.parametrize(
    ("speculation", "rule"),
    [
        ({"method": "mtp", "num_speculative_tokens": 1}, "SPC002"),
        ({"method": "draft_model", "num_speculative_tokens": 3}, "SPC008"),
        ({"method": "eagle3", "num_speculative_tokens": 3}, "SPC008"),
    ],
)
def test_drafting_that_vllm_refuses_is_infeasible(speculation: dict[str, Any], rule: str) -> None:
    """Qwen3-8B has no prediction layers, and a drafter must be named (vLLM 0.33.0 refuses all)."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="H100-SXM5-80GB"),
            constraints=Constraints(pin=EngineConfig(speculative_config=speculation)),
        )
    )

    assert not advice.feasible
    assert rule in {f.rule for f in advice.findings if f.severity == "error"}


def test_a_stated_size_far_from_the_layers_is_doubted() -> None:
    """A hundred terabytes for eight billion weights: both figures are said."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B", weights_bytes=10**14),
            hardware=Hardware(gpu="H100-SXM5-80GB"),
        )
    )

    doubt = next(finding for finding in advice.findings if finding.rule == "CAP014")
    assert "93132.26 GiB" in doubt.message
    assert "15." in doubt.message


def test_a_model_without_attention_does_not_end_where_vllm_starts() -> None:
    """2048 is what vLLM takes when nothing is stated; a longer length is accepted."""
    spec = resolve_model(ModelRef(id="tiiuae/falcon-mamba-7b"))
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="tiiuae/falcon-mamba-7b"),
            hardware=Hardware(gpu="H100-SXM5-80GB"),
            workload=Workload(preset="rag", prompt_tokens=6000, output_tokens=500),
        )
    )

    assert spec.default_max_model_len == 2048
    assert advice.binding is None or "ends at 2048" not in advice.binding.detail
    assert (advice.config.max_model_len or 0) >= 6500


def test_long_tails_do_not_run_one_at_a_time() -> None:
    """A pool of five typical requests admits more than one of them."""
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="RTX-4090"),
            workload=Workload(preset="long_context"),
        )
    )

    assert (advice.config.max_num_seqs or 0) >= 2


@pytest.mark.parametrize(
    ("model", "hardware", "changes"),
    [
        (
            "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
            Hardware(gpu="L40S"),
            {"workload": Workload(preset="code_completion")},
        ),
        (
            "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
            Hardware(gpu="GB10"),
            {"workload": Workload(preset="summarization"), "objective": "throughput"},
        ),
        (
            "moonshotai/Kimi-K2-Instruct",
            Hardware(gpu="H200-SXM-141GB", gpus_per_node=8, nodes=2),
            {"workload": Workload(preset="agent")},
        ),
        (
            "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
            Hardware(gpu="MI300X", gpus_per_node=8),
            {"workload": Workload(preset="batch")},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_alternative_is_much_better_without_a_word(
    model: str, hardware: Hardware, changes: dict[str, Any]
) -> None:
    """Better in all figures and within the limits: then it is the pick, or it is said why not."""
    request = TuningRequest(model=ModelRef(id=model), hardware=hardware, **changes)

    for other in recommend(request).alternatives:
        is_worse = any(word in other.trade_off for word in ("slower", "lower", "misses a limit"))
        assert is_worse or "not chosen because" in other.trade_off, other.trade_off
        assert "times as high" not in other.trade_off


@pytest.mark.parametrize(
    "pin", [{"max_num_batched_tokens": 1}, {"long_prefill_token_threshold": 1}]
)
def test_absurdly_small_steps_are_answered_without_a_simulation(pin: dict[str, int]) -> None:
    """A million steps are bounded by the closed form, which says so; the same answer each time."""
    request = TuningRequest(
        model=ModelRef(id="Qwen/Qwen3-8B"),
        hardware=Hardware(gpu="H100-SXM5-80GB"),
        constraints=Constraints(pin=EngineConfig(**pin)),  # type: ignore[arg-type]
    )

    advice = recommend(request)

    assert "SCH020" in {finding.rule for finding in advice.findings}
    assert advice.estimate == recommend(request).estimate


def test_a_cpu_is_not_called_a_gpu() -> None:
    """Reasons and obstacles speak of the hardware that was asked for."""
    fits = recommend(
        TuningRequest(model=ModelRef(id="Qwen/Qwen3-0.6B"), hardware=Hardware(gpu="CPU"))
    )
    too_large = recommend(
        TuningRequest(
            model=ModelRef(id="meta-llama/Llama-3.3-70B-Instruct"), hardware=Hardware(gpu="CPU")
        )
    )

    reasons = [decision.reason for decision in fits.decisions]
    assert not [reason for reason in reasons if "GPU" in reason]
    assert too_large.binding is not None
    assert "GiB of each CPU" in too_large.binding.detail


@pytest.mark.parametrize("requests_per_s", [1e-6, 1e-3])
def test_hardly_any_load_is_told_what_the_hardware_carries(requests_per_s: float) -> None:
    """The capacity is the machine's, not a multiple of a request a week."""
    arrivals = PoissonArrivals(requests_per_s=requests_per_s)
    advice = recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="L40S"),
            workload=Workload(preset="chat", arrivals=arrivals),
        )
    )

    assert advice.feasible
    assert advice.compared
    assert max(one.capacity_output_tokens_per_s for one in advice.compared) > 500
    assert "up to about 3." in advice.headline


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
    ],
)
def test_files_name_the_model_as_vllm_can_load_it(written: str, meant: str) -> None:
    """A short name is understood, but no repository is called so."""
    advice = recommend(
        TuningRequest(model=ModelRef(id=written), hardware=Hardware(gpu="H100-SXM5-80GB"))
    )

    assert advice.request.model.id == meant
    assert f"serve {meant}" in next(f.content for f in advice.files if f.path == "serve.sh")
    is_said = any(f"is taken for {meant}" in said for said in advice.request.assumptions)
    assert is_said is ("/" not in written)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"])
def test_without_a_load_a_limit_out_of_reach_is_the_obstacle(model: str) -> None:
    """Nobody asked for more requests than the CPU answers: its first token is what is too slow."""
    advice = recommend(TuningRequest(model=ModelRef(id=model), hardware=Hardware(gpu="CPU")))

    assert advice.binding is not None
    assert advice.binding.constraint == "ttft"
    (said,) = [one for one in advice.request.assumptions if one.startswith("No load was stated")]
    assert said.endswith("no load keeps the limits on it.")
    performance = advice.estimate.performance
    assert performance is not None
    assert not performance.saturated
