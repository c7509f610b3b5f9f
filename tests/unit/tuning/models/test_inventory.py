"""The list of weights and how ranks share it."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tuning.errors import InvalidRequest
from service.tuning.models.hf_config import read_config
from service.tuning.models.inventory import (
    ParallelLayout,
    draft_weights,
    parameter_count,
    rank_bytes,
    rank_draft_bytes,
    rank_parameters,
    rank_weight_bytes,
    rank_weights,
    stage_layers,
    stage_tensors,
    weights,
)
from service.tuning.models.spec import ModelSpec
from tests.unit.tuning.models.published_models import PUBLISHED, UNUSUAL, Config, llama

GIB = 2**30
CONFIGS: dict[str, Config] = {
    **{name: config for name, (config, _, _) in PUBLISHED.items()},
    **UNUSUAL,
}


def spec_of(name: str) -> ModelSpec:
    """Return the spec of a published model."""
    return read_config(CONFIGS[name], model_id=name)


def layout(
    tensor: int = 1, pipeline: int = 1, data: int = 1, *, expert: bool = False
) -> ParallelLayout:
    """Return a parallel layout."""
    return ParallelLayout(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=data,
        enable_expert_parallel=expert,
    )


LOGGED = [
    # What vLLM logged as memory of the model, GiB. Runs of llm-d-planner pull request 205
    # (releases 0.11 and 0.19) unless another origin is named.
    (llama(), layout(), 14.99),
    (
        llama(
            architectures=["Qwen2ForCausalLM"],
            hidden_size=3584,
            intermediate_size=18944,
            num_hidden_layers=28,
            num_attention_heads=28,
            num_key_value_heads=4,
            vocab_size=152064,
            max_position_embeddings=32768,
        ),
        layout(),
        14.25,
    ),
    (
        llama(
            architectures=["MixtralForCausalLM"],
            num_local_experts=8,
            num_experts_per_tok=2,
            vocab_size=32000,
            max_position_embeddings=32768,
        ),
        layout(2),
        43.51,
    ),
    (UNUSUAL["gemma-3-4b"], layout(), 8.58),
    (UNUSUAL["gemma-4-26B-A4B"], layout(), 48.5),
    (PUBLISHED["DeepSeek-V2-Lite"][0], layout(), 29.43),
    (
        # vllm issue 4083, release 0.4.0
        {
            "architectures": ["OPTForCausalLM"],
            "ffn_dim": 3072,
            "hidden_size": 768,
            "max_position_embeddings": 2048,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "vocab_size": 50272,
            "word_embed_proj_dim": 768,
            "torch_dtype": "float16",
        },
        layout(),
        0.2389,
    ),
]


@pytest.mark.parametrize(("config", "parallel", "logged_gib"), LOGGED)
def test_weights_match_what_vllm_logged(
    config: Config, parallel: ParallelLayout, logged_gib: float
) -> None:
    """Predicted bytes are within a quarter percent of the logged ones."""
    spec = read_config(config, model_id="example/model")

    predicted = rank_weight_bytes(spec, parallel, stage=0) / GIB

    assert predicted == pytest.approx(logged_gib, rel=0.0025)


def test_deepseek_r1_over_two_nodes_matches_its_log() -> None:
    """TP 16 with expert parallelism logged 40.317 GiB (vllm issue 16692, release 0.8.4)."""
    config = {
        **PUBLISHED["DeepSeek-V2-Lite"][0],
        "architectures": ["DeepseekV3ForCausalLM"],
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "q_lora_rank": 1536,
        "vocab_size": 129280,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    spec = read_config(config, model_id="deepseek-ai/DeepSeek-R1")

    predicted = rank_weight_bytes(spec, layout(16, expert=True), stage=0) / GIB

    assert predicted == pytest.approx(40.317, rel=0.001)


@pytest.mark.parametrize("name", CONFIGS)
def test_more_ranks_never_hold_more_each(name: str) -> None:
    """Splitting a model over more GPUs never raises what one of them holds."""
    spec = spec_of(name)
    held = [rank_weight_bytes(spec, layout(size), stage=0) for size in (1, 2, 4, 8)]

    assert all(more <= fewer * 1.001 for fewer, more in itertools.pairwise(held))


@pytest.mark.parametrize("name", CONFIGS)
def test_the_ranks_together_hold_the_model(name: str) -> None:
    """No weight is lost when it is split."""
    spec = spec_of(name)

    for tensor in weights(spec):
        assert rank_parameters(tensor, layout(4)) * 4 >= tensor.parameters * 0.999


@pytest.mark.parametrize("name", CONFIGS)
def test_stages_share_out_every_layer_once(name: str) -> None:
    """The tensors of all stages are those of the model; only caches and tied heads repeat."""
    spec = spec_of(name)
    stages = [stage_tensors(spec, pipeline_parallel_size=2, stage=stage) for stage in range(2)]
    once = [t.name for stage in stages for t in stage if t.place != "every"]

    assert sorted(once) == sorted(t.name for t in weights(spec) if t.place != "every")


@pytest.mark.parametrize("name", CONFIGS)
def test_kinds_of_weight_add_up_to_the_rank(name: str) -> None:
    """The sum by kind is that of the tensors, and the log is a little above it."""
    spec = spec_of(name)
    parallel = layout(2)
    by_kind = sum(item.bytes_ for item in rank_weights(spec, parallel, stage=0))
    tensors = stage_tensors(spec, pipeline_parallel_size=1, stage=0)

    assert by_kind == pytest.approx(sum(rank_bytes(t, parallel) for t in tensors))
    assert by_kind <= rank_weight_bytes(spec, parallel, stage=0) * 1.0001
    assert rank_weight_bytes(spec, parallel, stage=0) <= by_kind * 1.05 + 64 * 2**20


@settings(deadline=None)
@given(layers=st.integers(1, 130), stages=st.integers(1, 130))
def test_stages_are_contiguous_and_nearly_equal(layers: int, stages: int) -> None:
    """Every layer is on one stage, in order, and stages differ by one layer at most."""
    spec = read_config(llama(num_hidden_layers=layers), model_id="example/model")
    if stages > layers:
        with pytest.raises(InvalidRequest, match="exceeds"):
            stage_layers(spec, stages)
        return

    split = stage_layers(spec, stages)

    assert [layer for stage in split for layer in stage] == list(range(layers))
    sizes = [len(stage) for stage in split]
    assert max(sizes) - min(sizes) <= 1


def test_the_last_stage_gets_no_extra_layer() -> None:
    """What does not divide goes to the stages before the last (vLLM 0.33, get_pp_indices)."""
    sizes = {
        (layers, stages): [
            len(stage)
            for stage in stage_layers(
                read_config(llama(num_hidden_layers=layers), model_id="m"), stages
            )
        ]
        for layers, stages in ((61, 4), (62, 4), (63, 4), (33, 2))
    }

    assert sizes == {
        (61, 4): [15, 15, 16, 15],
        (62, 4): [15, 16, 16, 15],
        (63, 4): [16, 16, 16, 15],
        (33, 2): [17, 16],
    }


def test_kv_projections_are_copied_beyond_the_kv_heads() -> None:
    """Once TP exceeds the KV heads each rank keeps one head whole."""
    spec = read_config(llama(num_key_value_heads=2), model_id="example/model")
    key = next(t for t in weights(spec) if t.name.endswith("k_proj"))
    held = [rank_parameters(key, layout(size)) / key.parameters for size in (1, 2, 4, 8)]

    assert held == [1.0, 0.5, 0.5, 0.5]


def test_expert_parallelism_deals_whole_experts() -> None:
    """Ranks hold whole experts, the first ones one more when they do not divide."""
    spec = spec_of("Qwen3-Next-80B-A3B")
    expert = next(t for t in weights(spec) if t.kind == "routed_experts")

    assert rank_parameters(expert, layout(8, expert=True)) == expert.parameters / 8
    assert rank_parameters(expert, layout(3, expert=True)) == expert.parameters * 171 / 512
    assert rank_parameters(expert, layout(2, data=4)) == expert.parameters / 8


def test_data_parallelism_copies_everything_but_the_experts() -> None:
    """Attention is whole on every data-parallel rank."""
    spec = spec_of("Qwen3-Next-80B-A3B")
    shares = {
        tensor.kind: rank_parameters(tensor, layout(data=4)) / tensor.parameters
        for tensor in weights(spec)
    }

    assert shares["attention"] == 1.0
    assert shares["routed_experts"] == 0.25


def test_a_tied_head_costs_nothing_on_one_stage_and_a_copy_on_two() -> None:
    """Tying saves the head unless the ends of the model are on different GPUs."""
    tied = read_config(llama(tie_word_embeddings=True), model_id="example/model")
    untied = read_config(llama(), model_id="example/model")
    head = 128256 * 4096 * 2

    saved = rank_weight_bytes(untied, layout(), stage=0) - rank_weight_bytes(
        tied, layout(), stage=0
    )
    last = [rank_weight_bytes(s, layout(1, 2), stage=1) for s in (tied, untied)]

    assert saved == pytest.approx(head, rel=0.01)
    assert last[0] == last[1]


def test_a_tied_head_is_read_as_a_head() -> None:
    """Latency finds the matrix of the output head also when it is the embedding."""
    spec = read_config(llama(tie_word_embeddings=True), model_id="example/model")
    kinds = {item.kind for item in rank_weights(spec, layout(), stage=0)}

    assert "head" in kinds
    assert "embedding" not in kinds


def test_the_vocabulary_is_padded() -> None:
    """The vocabulary is padded to a multiple of 64 rows in vLLM."""
    spec = read_config(llama(vocab_size=49155), model_id="example/model")
    embedding = next(t for t in weights(spec) if t.kind == "embedding")

    assert embedding.parameters == 49216 * 4096


def test_pixtral_is_whole_on_every_rank_and_siglip_is_split() -> None:
    """Some towers are replicated over tensor parallelism."""
    mistral = read_config(llama(architectures=["Mistral3ForConditionalGeneration"]), model_id="m")
    gemma = spec_of("gemma-3-4b")
    shares = [
        sum(i.parameters for i in rank_weights(s, layout(4), stage=0) if i.kind == "vision")
        / sum(t.parameters for t in weights(s) if t.kind == "vision")
        for s in (mistral, gemma)
    ]

    assert shares[0] == 1.0
    assert shares[1] < 0.3


def test_the_absorbed_copy_of_latent_attention_stays_in_16_bit() -> None:
    """Quantisation does not reach the second copy of kv_b that decoding uses."""
    spec = spec_of("GLM-5")
    absorbed = [t for t in weights(spec) if t.kind == "mla_absorbed"]

    assert len(absorbed) == 78
    assert {t.bytes_per_parameter for t in absorbed} == {2}


def test_mxfp4_experts_are_padded_for_their_kernels() -> None:
    """gpt-oss experts of 2,880 by 2,880 take the room of 3,072 by 2,944."""
    spec = spec_of("gpt-oss-20b")
    expert = next(t for t in weights(spec) if t.kind == "routed_experts")

    padded = rank_bytes(expert, layout()) / (expert.parameters * expert.bytes_per_parameter)

    assert padded == pytest.approx(3072 * 2944 / 2880**2)


def test_prediction_layers_are_extra() -> None:
    """The layers for speculation are listed apart and add to the last stage."""
    spec = spec_of("GLM-5")
    names = {tensor.name for tensor in draft_weights(spec)}

    assert "model.layers.78.eh_proj" in names
    assert not names & {tensor.name for tensor in weights(spec)}
    assert rank_draft_bytes(spec, layout(8)) > 0
    assert draft_weights(spec_of("gpt-oss-20b")) == ()


def test_a_stated_size_fixes_a_layout_that_is_not_known() -> None:
    """The total of a GGUF checkpoint tells how large its weights are on average."""
    config = llama(quantization_config={"quant_method": "gguf"})
    stated = 5_000_000_000

    spec = read_config(config, model_id="example/model", weights_bytes=stated)
    stored = sum(t.bytes_ for t in weights(spec) if t.kind != "rotary_cache")

    assert stored == pytest.approx(stated, rel=1e-6)


def test_a_stated_size_that_makes_no_sense_is_not_followed() -> None:
    """A total below any known format leaves the default."""
    config = llama(quantization_config={"quant_method": "gguf"})
    plain = read_config(config, model_id="example/model")
    absurd = msgspec.structs.replace(plain, weights_bytes=1)

    assert weights(absurd) == weights(plain)


def test_layers_listed_in_order_are_optional() -> None:
    """A spec without an order lays its groups out one after the other."""
    spec = spec_of("DeepSeek-V2-Lite")
    unordered = msgspec.structs.replace(spec, layer_order=())

    assert parameter_count(unordered) == parameter_count(spec)


def test_an_eagle_head_brings_a_layer_and_a_join_but_no_embedding() -> None:
    """EAGLE-3 for Llama-3.1-8B holds about 0.4 billion parameters, most in its MLP and head."""
    config = llama(
        architectures=["LlamaForCausalLMEagle3"], num_hidden_layers=1, draft_vocab_size=32000
    )
    spec = read_config(config, model_id="example/EAGLE3")
    kinds = {tensor.kind for tensor in weights(spec)}

    assert "embedding" not in kinds
    assert {"draft", "head", "dense_mlp"} <= kinds
    assert parameter_count(spec)[0] / 1e9 == pytest.approx(0.425, rel=0.01)
