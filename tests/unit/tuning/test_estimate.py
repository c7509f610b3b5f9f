"""The what-if from request to answer."""

from typing import Any

import msgspec
import pytest

from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.workload import BatchArrivals, PoissonArrivals, Workload
from service.tuning.errors import (
    TuningError,
    UnknownEngineVersion,
    UnknownGpu,
    UnknownModel,
    UnsupportedArchitecture,
)
from service.tuning.estimate import estimate
from service.tuning.situation import with_model_extras

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def asked(
    *,
    config: dict[str, Any] | None = None,
    version: str = "0.19.0",
    hardware: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **more: object,
) -> Estimate:
    body = {
        "model": {"id": "test/llama", "config": LLAMA, **(model or {})},
        "hardware": {"gpu": "H100 80GB", **(hardware or {})},
        "engine": {"version": version, "config": config or {}},
        **more,
    }
    return estimate(msgspec.convert(body, EstimateRequest))


def test_an_answer_carries_every_part_of_the_memory() -> None:
    """Total, request, parts and the cache add up in GiB."""
    answer = asked(config={"max_model_len": 8192})

    memory = answer.memory
    assert memory is not None
    parts = memory.weights_gib + memory.activation_gib + memory.non_torch_gib + memory.kv_cache_gib
    assert parts == pytest.approx(memory.requested_gib, abs=0.001)
    assert memory.requested_gib == pytest.approx(0.9 * memory.total_gib, abs=0.001)
    assert memory.kv_bytes_per_token == 131_072
    assert memory.block_size == 16
    assert answer.fits


def test_the_band_holds_the_prediction() -> None:
    """Low and high enclose the tokens and the GiB of the cache."""
    memory = asked(config={"max_model_len": 8192}).memory

    assert memory is not None
    low, high = memory.band["kv_cache_tokens"]
    assert low < memory.kv_cache_tokens < high
    low, high = memory.band["kv_cache_gib"]
    assert low < memory.kv_cache_gib < high


def test_defaults_are_shown_and_given_values_are_not() -> None:
    """What vLLM fills in is listed apart from what the caller wrote."""
    answer = asked(config={"max_model_len": 8192})

    assert answer.defaults_applied.max_model_len is None
    assert answer.defaults_applied.gpu_memory_utilization == 0.9
    assert answer.defaults_applied.max_num_batched_tokens == 8192


def test_a_refused_configuration_is_an_answer() -> None:
    """Heads that do not divide make `fits` false with an error, and still show the memory."""
    answer = asked(config={"tensor_parallel_size": 5}, hardware={"gpus_per_node": 8})

    assert not answer.fits
    assert any(finding.severity == "error" for finding in answer.findings)
    assert answer.memory is not None


def test_too_small_a_card_names_the_longest_request() -> None:
    """The full length does not fit an RTX 4090; the answer says what does."""
    answer = asked(hardware={"gpu": "RTX 4090"})

    assert not answer.fits
    assert answer.memory is not None
    assert 0 < answer.memory.largest_max_model_len < 131_072
    assert "CAP003" in {finding.rule for finding in answer.findings}


def test_nothing_left_shows_what_is_missing() -> None:
    """The cache is negative by the shortfall, its tokens are none."""
    memory = asked(hardware={"gpu": "RTX 4090"}, config={"gpu_memory_utilization": 0.6}).memory

    assert memory is not None
    assert memory.kv_cache_gib < 0
    assert memory.kv_cache_tokens == 0
    assert memory.kv_bytes_per_token == 131_072
    assert memory.band["kv_cache_tokens"] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (UnknownModel, {"model": {"id": "nobody/nothing", "config": None}}),
        (UnknownGpu, {"hardware": {"gpu": "Abacus 3000"}}),
        (UnknownEngineVersion, {"version": "7.0.0"}),
        (
            UnsupportedArchitecture,
            {"model": {"config": {**LLAMA, "architectures": ["UnheardOfForCausalLM"]}}},
        ),
    ],
)
def test_what_is_unknown_is_refused_with_its_place(
    error: type[TuningError], change: dict[str, Any]
) -> None:
    """Unknown model, GPU, release or architecture raise, and name the field."""
    with pytest.raises(error) as caught:
        asked(**change)

    assert caught.value.pointer.startswith("/")


def test_the_same_request_gets_the_same_answer() -> None:
    """Same input and versions, same bytes."""
    assert msgspec.json.encode(asked()) == msgspec.json.encode(asked())


def test_provenance_names_release_and_data() -> None:
    """The answer says which data it was made from."""
    provenance = asked(version="v0.19").provenance

    assert provenance.engine_version == "0.19.0"
    assert len(provenance.catalogue_version) == 12
    assert provenance.catalogue_version != provenance.coefficients_version


def test_adapters_of_the_model_are_switched_on() -> None:
    """`model.lora` becomes the settings that vLLM needs, unless the caller set them."""
    reference = msgspec.convert(
        {"id": "a/b", "lora": {"max_rank": 32, "max_adapters": 4}}, ModelRef
    )

    filled = with_model_extras(EngineConfig(), reference)
    own = with_model_extras(EngineConfig(enable_lora=False), reference)

    assert (filled.enable_lora, filled.max_loras, filled.max_lora_rank) == (True, 4, 32)
    assert own.max_loras is None


def test_the_drafter_of_the_model_is_switched_on() -> None:
    """`model.speculative` becomes vLLM's `speculative_config`, unless the caller set one."""
    reference = msgspec.convert(
        {"id": "a/b", "speculative": {"method": "eagle3", "num_tokens": 3}}, ModelRef
    )

    filled = with_model_extras(EngineConfig(), reference)
    own = with_model_extras(EngineConfig(speculative_config={"method": "ngram"}), reference)

    assert filled.speculative_config == {"method": "eagle3", "num_speculative_tokens": 3}
    assert own.speculative_config == {"method": "ngram"}


def test_adapters_shrink_the_cache() -> None:
    """Their slots are weights."""
    plain, adapted = (
        asked().memory,
        asked(model={"lora": {"max_rank": 64, "max_adapters": 8}}).memory,
    )

    assert plain is not None
    assert adapted is not None
    assert adapted.kv_cache_gib < plain.kv_cache_gib - 1


def test_a_drafter_of_its_own_is_planned() -> None:
    """A draft model's weights and layers take part of the card."""
    drafter = {
        "method": "draft_model",
        "num_tokens": 3,
        "model": {"id": "test/small", "config": {**LLAMA, "num_hidden_layers": 8}},
    }

    plain, drafted = asked().memory, asked(model={"speculative": drafter}).memory

    assert plain is not None
    assert drafted is not None
    assert drafted.weights_gib > plain.weights_gib + 3
    assert drafted.kv_bytes_per_token == 40 * 4096


def test_a_known_eagle_head_counts_what_it_holds() -> None:
    """A head with its config is one layer and a join; an unknown one is estimated as that."""
    head = {
        **LLAMA,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32_000,
    }
    drafter = {"method": "eagle3", "num_tokens": 3, "model": {"id": "test/head", "config": head}}
    unknown = {"method": "eagle3", "num_tokens": 3, "model": {"id": "nobody/head"}}

    plain = asked().memory
    known, guessed = (asked(model={"speculative": each}) for each in (drafter, unknown))

    assert plain is not None
    assert known.memory is not None
    assert guessed.memory is not None
    assert known.memory.kv_bytes_per_token == guessed.memory.kv_bytes_per_token == 33 * 4096
    assert 0.3 < known.memory.weights_gib - plain.weights_gib < 2
    assert 0.3 < guessed.memory.weights_gib - plain.weights_gib < 2
    assert "CAP012" not in {finding.rule for finding in guessed.findings}


def test_an_unknown_drafter_is_said_to_be_left_out() -> None:
    """Its memory is not guessed; the answer warns."""
    answer = asked(
        config={
            "speculative_config": {
                "method": "draft_model",
                "model": "nobody/draft",
                "num_speculative_tokens": 2,
            }
        }
    )

    warning = next(finding for finding in answer.findings if finding.rule == "CAP012")
    assert warning.severity == "warning"
    assert "nobody/draft" in warning.message


def test_auto_length_is_resolved_in_the_answer() -> None:
    """The memory names the length that "auto" comes to."""
    memory = asked(hardware={"gpu": "RTX 4090"}, config={"max_model_len": "auto"}).memory

    assert memory is not None
    assert memory.max_model_len == memory.largest_max_model_len


def test_without_a_workload_there_is_no_performance() -> None:
    """Memory alone needs no load."""
    answer = asked()

    assert answer.performance is None
    assert answer.slo == []


def test_a_workload_brings_latency_and_verdicts() -> None:
    """With a preset the answer holds latencies and each target's verdict."""
    answer = asked(
        config={"max_model_len": 8192},
        workload={"preset": "chat", "arrivals": {"kind": "poisson", "requests_per_s": 1}},
        slo={"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 60_000}]},
    )

    assert answer.performance is not None
    assert answer.performance.ttft_ms.p50 > 0
    assert [outcome.verdict for outcome in answer.slo if outcome.predicted_ms is not None] == [
        "met"
    ]


def test_what_does_not_start_has_no_latency() -> None:
    """A server that vLLM would refuse for its weights serves nobody."""
    answer = asked(hardware={"gpu": "RTX-3060-12GB"}, workload={"preset": "chat"})

    assert not answer.fits
    assert answer.performance is None


def test_a_length_too_long_for_the_pool_still_gets_latency_at_one_that_fits() -> None:
    """Only the default length is too long for this card: the load itself would run."""
    answer = asked(hardware={"gpu": "RTX 4090"}, workload={"preset": "chat"})

    assert not answer.fits
    assert answer.performance is not None
    assert answer.memory is not None
    note = next(f for f in answer.findings if f.rule == "CAP003" and f.severity == "note")
    assert str(answer.memory.largest_max_model_len) in note.message
    assert answer.memory.max_model_len == 131_072


def test_experts_cut_across_scale_blocks_get_latency_with_whole_experts() -> None:
    """Experts of 1,536 over eight ranks leave 192 of blocks of 128: whole ones per rank start."""
    config = {
        **LLAMA,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    answer = asked(
        model={"config": config},
        hardware={"gpu": "H200", "gpus_per_node": 8, "interconnect": "nvlink"},
        config={"tensor_parallel_size": 8, "max_model_len": 8192},
        workload={"preset": "chat"},
    )

    assert not answer.fits
    assert answer.performance is not None
    notes = [f for f in answer.findings if f.rule == "QNT006" and f.severity == "note"]
    assert [note.setting for note in notes] == ["enable_expert_parallel"]


def test_a_model_short_of_memory_gets_latency_at_the_share_that_guides_give() -> None:
    """Weights of 71 GiB leave nothing of 90 % of 79 GiB, and a little of 95 %: told as a note."""
    config = {**LLAMA, "num_hidden_layers": 170}
    answer = asked(
        model={"config": config},
        config={"max_model_len": 2048, "max_num_seqs": 256, "enforce_eager": True},
        workload={
            "prompt_tokens": 512,
            "output_tokens": 64,
            "arrivals": {"kind": "closed_loop", "max_concurrency": 2},
        },
    )

    assert not answer.fits
    assert answer.memory is not None
    assert answer.memory.kv_cache_gib < 0
    assert answer.performance is not None
    notes = [f for f in answer.findings if f.rule == "CAP002" and f.severity == "note"]
    assert [note.setting for note in notes] == ["gpu_memory_utilization"]


def test_a_stated_share_above_the_highest_is_not_raised() -> None:
    """What does not start with all the memory there is gets no latency."""
    answer = asked(
        model={"config": {**LLAMA, "num_hidden_layers": 180}},
        config={"max_model_len": 2048, "gpu_memory_utilization": 0.96},
        workload={"preset": "chat"},
    )

    assert not answer.fits
    assert answer.performance is None


@pytest.mark.parametrize(
    ("prompt_tokens", "said"),
    [(3500, "they are refused or cut"), (5000, "every prompt is refused")],
)
def test_requests_beyond_the_model_s_own_length_are_said(prompt_tokens: int, said: str) -> None:
    """Nobody stated a length, and the model ends at 4096 tokens all the same."""
    answer = estimate(
        EstimateRequest(
            model=ModelRef(id="TheBloke/Llama-2-70B-Chat-AWQ"),
            hardware=Hardware(gpu="H100-SXM5-80GB"),
            workload=Workload(
                prompt_tokens=prompt_tokens,
                output_tokens=1000,
                arrivals=PoissonArrivals(requests_per_s=0.1),
            ),
        )
    )

    warning = next(finding for finding in answer.findings if finding.rule == "MEM014")
    assert "own length of 4096 tokens" in warning.message
    assert said in warning.message
    assert warning.suggestion is not None
    assert "longer context" in warning.suggestion
    assert (answer.performance is None) == ("every" in said)


def test_a_load_that_is_refused_as_a_whole_is_an_answer_without_latency() -> None:
    """Prompts that even the whole cache could not hold are no mistake of the request."""
    answer = estimate(
        EstimateRequest(
            model=ModelRef(id="TheBloke/Llama-2-13B-Chat-AWQ"),
            hardware=Hardware(gpu="RTX-4090"),
            workload=Workload(preset="agent"),
        )
    )

    assert answer.fits
    assert answer.performance is None


def test_a_length_that_fits_by_a_block_alone_gets_no_latency() -> None:
    """The largest length that fits may leave nothing to schedule a request in."""
    answer = estimate(
        EstimateRequest(
            model=ModelRef(id="microsoft/Phi-4-mini-reasoning"),
            hardware=Hardware(gpu="RTX-3060-12GB", used_memory_gib=2.0),
            engine=Engine(
                version="0.26.0",
                config=EngineConfig(
                    gpu_memory_utilization=0.74, max_model_len=688, max_num_batched_tokens=2048
                ),
            ),
            workload=Workload(prompt_tokens=78, arrivals=BatchArrivals(num_requests=100)),
        )
    )

    assert not answer.fits
    assert answer.performance is None
    assert not [f for f in answer.findings if f.rule == "CAP003" and f.severity == "note"]


@pytest.mark.parametrize("size_bytes", [10**9, 3 * 10**9 + 7])
def test_the_band_of_a_stated_cache_holds_its_tokens(size_bytes: int) -> None:
    """Nothing is unsure about a size that was stated, and rounding takes no token away."""
    answer = asked(config={"kv_cache_memory_bytes": size_bytes})

    assert answer.memory is not None
    low, high = answer.memory.band["kv_cache_tokens"]
    assert low == answer.memory.kv_cache_tokens == high
