"""Reading config.json files into model specs."""

from typing import Any

import pytest

from service.tuning.errors import InvalidRequest, UnsupportedArchitecture
from service.tuning.models.hf_config import read_config
from service.tuning.models.inventory import parameter_count
from service.tuning.models.spec import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    ModelSpec,
    RopeCache,
    StateSpace,
)
from tests.unit.tuning.models.published_models import PUBLISHED, UNUSUAL, llama


def read(config: dict[str, Any]) -> ModelSpec:
    """Return the spec of a config."""
    return read_config(config, model_id="example/model")


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_add_up_to_what_the_model_card_states(name: str) -> None:
    """The tensors of a published model sum to its published size."""
    config, total_billions, _ = PUBLISHED[name]

    total, _ = parameter_count(read(config))

    assert total / 1e9 == pytest.approx(total_billions, rel=0.007)


@pytest.mark.parametrize("name", PUBLISHED)
def test_active_parameters_are_near_what_the_model_card_states(name: str) -> None:
    """A token passes through about the published number of parameters."""
    config, _, active_billions = PUBLISHED[name]

    total, active = parameter_count(read(config))

    assert active <= total
    assert active / 1e9 == pytest.approx(active_billions, rel=0.06)


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_layouts_are_read(name: str) -> None:
    """Layers, groups and their order agree for every layout that is read."""
    spec = read(UNUSUAL[name])

    assert spec.num_layers == len(spec.layer_order)
    assert all(spec.layer_order.count(i) == g.count for i, g in enumerate(spec.layers))


def test_an_unknown_architecture_is_refused_by_name() -> None:
    """A layout that nobody described is never guessed."""
    with pytest.raises(UnsupportedArchitecture, match="NobodyForCausalLM") as refusal:
        read(llama(architectures=["NobodyForCausalLM"]))

    assert refusal.value.missing
    assert refusal.value.pointer == "/model/config/architectures"


@pytest.mark.parametrize(
    "architecture", ["DeepseekV4ForCausalLM", "MllamaForConditionalGeneration"]
)
def test_a_layout_beyond_the_model_is_refused_with_what_is_missing(architecture: str) -> None:
    """An architecture that is known but not modelled says what stands in the way."""
    with pytest.raises(UnsupportedArchitecture, match="unsupported layout") as refusal:
        read(llama(architectures=[architecture]))

    assert refusal.value.missing


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
def test_a_missing_key_is_named(key: str) -> None:
    """What the layout needs and the config lacks is named in the refusal."""
    config = llama()
    del config[key]

    with pytest.raises(UnsupportedArchitecture) as refusal:
        read(config)

    assert key in refusal.value.message
    assert refusal.value.missing == (key,)


@pytest.mark.parametrize("value", [0, -1, "many", 1.5, True, 10**40, float("inf"), [4096], {}])
def test_a_senseless_value_is_named_with_its_place(value: object) -> None:
    """A malformed number points at its key."""
    with pytest.raises(InvalidRequest) as refusal:
        read(llama(hidden_size=value))

    assert refusal.value.pointer == "/model/config/hidden_size"


def test_heads_that_kv_heads_do_not_divide_are_refused() -> None:
    """Grouped attention needs equal groups."""
    with pytest.raises(InvalidRequest, match="num_key_value_heads"):
        read(llama(num_key_value_heads=5))


def test_a_missing_architecture_is_asked_for() -> None:
    """A config without architectures and with an unknown type cannot be read."""
    with pytest.raises(UnsupportedArchitecture) as refusal:
        read({"hidden_size": 4096})

    assert refusal.value.missing == ("architectures",)


def test_a_text_model_type_stands_in_for_the_architecture() -> None:
    """Excerpts that name only a common model type are read."""
    config = llama()
    del config["architectures"]

    assert read(config).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("scaling", "stated", "longest"),
    [
        (None, 4096, 4096),
        ({"rope_type": "linear", "factor": 4.0}, 4096, 16384),
        ({"type": "dynamic", "factor": 2.0}, 4096, 8192),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            32768,
            131072,
        ),
        (
            {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            163840,
            163840,
        ),
        (
            {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
            131072,
            131072,
        ),
    ],
)
def test_rope_scaling_changes_the_reach_as_vllm_derives_it(
    scaling: dict[str, object] | None, stated: int, longest: int
) -> None:
    """Linear and dynamic scaling stretch the stated length, YaRN its original one."""
    spec = read(llama(max_position_embeddings=stated, rope_scaling=scaling))

    assert spec.max_position_embeddings == longest


def test_longrope_starts_from_the_original_length() -> None:
    """LongRoPE models may reach far, but run at their original length unless told."""
    spec = read(
        llama(
            architectures=["Phi3ForCausalLM"],
            original_max_position_embeddings=4096,
            rope_scaling={"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
        )
    )

    assert spec.max_position_embeddings == 131072
    assert spec.default_max_model_len == 4096


def test_gemma_3_keeps_two_rotary_tables_and_its_stated_length() -> None:
    """Gemma 3 states the scaled length; local layers rotate without the scaling."""
    spec = read(UNUSUAL["gemma-3-4b"])

    assert spec.max_position_embeddings == 131072
    assert set(spec.rope_caches) == {
        RopeCache(positions=131072, dim=256),
        RopeCache(positions=8 * 131072, dim=256),
    }


@pytest.mark.parametrize(
    ("architecture", "times"),
    [("Qwen2_5_VLForConditionalGeneration", 4), ("Qwen3VLForConditionalGeneration", 1)],
)
def test_rotary_tables_of_picture_models_were_four_times_as_long(
    architecture: str, times: int
) -> None:
    """All of them to 0.29; Qwen3-VL and its kin need the positions of the text alone since."""
    rope = {"type": "default", "mrope_section": [16, 24, 24]}
    spec = read(llama(architectures=[architecture], rope_scaling=rope))
    positions = spec.max_position_embeddings

    (table,) = spec.rope_caches

    assert (table.positions, table.older_positions) == (times * positions, 4 * positions)


@pytest.mark.parametrize(
    ("stated", "bytes_"),
    [({}, 2), ({"mamba_ssm_dtype": "float32"}, 4), ({"mamba_ssm_dtype": "bfloat16"}, 2)],
)
def test_recurrent_state_has_the_dtype_of_the_model_unless_the_config_says(
    stated: dict[str, str], bytes_: int
) -> None:
    """Qwen3-Next logs of 0.10.2 hold 16-bit states; Qwen3.5 states 32 bits in its config."""
    spec = read({**PUBLISHED["Qwen3-Next-80B-A3B"][0], **stated})

    assert spec.ssm_state_bytes == bytes_


def test_nemotron_keeps_its_state_in_32_bits() -> None:
    """Nemotron-H takes float32 when its config does not name a dtype."""
    config = dict(UNUSUAL["Nemotron-3-Nano"])
    config.pop("mamba_ssm_cache_dtype", None)

    assert read(config).ssm_state_bytes == 4


def test_explicit_layer_types_win() -> None:
    """Windows follow `layer_types`."""
    spec = read(UNUSUAL["gpt-oss-20b"])
    windows = [
        spec.layers[i].mixer.window  # type: ignore[union-attr]
        for i in spec.layer_order
    ]

    assert windows == [128, None] * 12


def test_an_unused_sliding_window_of_qwen_is_ignored() -> None:
    """Qwen configs carry a window that `use_sliding_window` switches off."""
    spec = read(llama(architectures=["Qwen2ForCausalLM"], sliding_window=131072))

    assert isinstance(spec.layers[0].mixer, GroupedQueryAttention)
    assert spec.layers[0].mixer.window is None


def test_a_uniform_sliding_window_reaches_every_layer() -> None:
    """Mistral 7B v0.1 slides in all layers."""
    spec = read(llama(architectures=["MistralForCausalLM"], sliding_window=4096))

    assert [g.mixer.window for g in spec.layers] == [4096]  # type: ignore[union-attr]


def test_llama_4_attends_in_chunks_except_every_fourth_layer() -> None:
    """Scout has 36 chunked and 12 full layers, all with experts and one shared expert."""
    spec = read(UNUSUAL["Llama-4-Scout"])
    chunked = {g.mixer.chunk: g.count for g in spec.layers}  # type: ignore[union-attr]

    assert chunked == {8192: 36, None: 12}
    part = spec.layers[0].feed_forward
    assert isinstance(part, MixtureOfExperts)
    assert part.shared_intermediate_size == part.expert_intermediate_size == 8192


def test_first_layers_of_deepseek_are_dense_and_attend_latently() -> None:
    """The first `first_k_dense_replace` layers have a plain MLP."""
    spec = read(PUBLISHED["DeepSeek-V2-Lite"][0])

    assert [type(g.feed_forward) for g in spec.layers] == [DenseFeedForward, MixtureOfExperts]
    assert [g.count for g in spec.layers] == [1, 26]
    assert all(isinstance(g.mixer, LatentAttention) for g in spec.layers)


def test_sparse_latent_attention_brings_its_indexer() -> None:
    """`index_topk` makes MLA sparse."""
    mixer = read(UNUSUAL["GLM-5"]).layers[0].mixer

    assert isinstance(mixer, LatentAttention)
    assert (mixer.index_topk, mixer.index_num_heads, mixer.index_head_dim) == (2048, 32, 128)


def test_nemotron_layers_follow_the_pattern() -> None:
    """Each letter of the pattern is one layer, mixer or feed-forward alone."""
    spec = read(UNUSUAL["Nemotron-3-Nano"])
    first = [spec.layers[i] for i in spec.layer_order[:6]]

    assert isinstance(first[0].mixer, StateSpace)
    assert first[0].feed_forward is None
    assert isinstance(first[1].feed_forward, MixtureOfExperts)
    assert first[1].mixer is None
    assert isinstance(first[5].mixer, GroupedQueryAttention)


def test_gated_delta_net_alternates_with_gated_attention() -> None:
    """Three linear layers go with each layer of attention, which has an output gate."""
    spec = read(PUBLISHED["Qwen3-Next-80B-A3B"][0])
    kinds = [type(spec.layers[i].mixer) for i in spec.layer_order[:4]]

    assert kinds == [LinearAttention] * 3 + [GroupedQueryAttention]
    assert spec.is_hybrid
    assert spec.is_moe


def test_gemma_4_full_layers_have_wider_heads_and_experts_beside_the_mlp() -> None:
    """Full layers of Gemma 4 use the global sizes; experts stand beside a dense MLP."""
    spec = read(UNUSUAL["gemma-4-26B-A4B"])
    full = next(g.mixer for g in spec.layers if g.mixer and g.mixer.window is None)  # type: ignore[union-attr]

    assert isinstance(full, GroupedQueryAttention)
    assert (full.head_dim, full.num_kv_heads, full.k_eq_v) == (512, 2, True)
    part = spec.layers[0].feed_forward
    assert isinstance(part, MixtureOfExperts)
    assert part.parallel_dense_intermediate_size == 2112


def test_searched_blocks_may_lack_attention() -> None:
    """Nemotron Super leaves attention out of some blocks."""
    spec = read(UNUSUAL["Nemotron-Super"])

    assert any(g.mixer is None for g in spec.layers)


def test_sliding_layers_of_mimo_have_sizes_of_their_own() -> None:
    """MiMo V2 gives sliding layers their own number of KV heads and narrower values."""
    spec = read(UNUSUAL["MiMo-V2"])
    sizes = {
        (g.mixer.window, g.mixer.num_kv_heads, g.mixer.v_head_dim)  # type: ignore[union-attr]
        for g in spec.layers
    }

    assert sizes == {(None, 4, 128), (128, 8, 128)}


def test_the_text_section_is_read_with_the_family_it_names() -> None:
    """A nested language model keeps its own traits, here the biases of Qwen2."""
    spec = read(PUBLISHED["InternVL3-8B"][0])

    assert spec.layers[0].mixer.qkv_bias  # type: ignore[union-attr]
    assert spec.is_multimodal
    assert spec.vision is not None
    assert spec.vision.kind == "internvl"


def test_a_tower_that_an_excerpt_leaves_out_lowers_the_confidence() -> None:
    """The published tower stands in for a missing section, and the answer says so."""
    config = dict(UNUSUAL["gemma-3-4b"])
    del config["vision_config"]

    spec = read(config)

    assert spec.vision is not None
    assert spec.vision.num_layers == 27
    assert spec.layout_confidence == "medium"


@pytest.mark.parametrize(
    ("stated", "loaded"),
    [("bfloat16", "bfloat16"), ("torch.float16", "float16"), ("float32", "bfloat16")],
)
def test_the_dtype_is_the_one_vllm_loads(stated: str, loaded: str) -> None:
    """Checkpoints in 32 bit are served in 16."""
    spec = read(llama(torch_dtype=stated))

    assert spec.dtype == loaded
    assert spec.layout_confidence == "high"


def test_a_missing_dtype_leaves_the_layout_known() -> None:
    """A silent config is served in 16 bit whatever its files hold, so the sizes are the same."""
    config = llama()
    del config["torch_dtype"]

    spec = read(config)

    assert spec.dtype == "bfloat16"
    assert spec.layout_confidence == "high"


@pytest.mark.parametrize(
    ("architecture", "stated", "tied"),
    [
        ("LlamaForCausalLM", None, False),
        ("GemmaForCausalLM", None, True),
        ("GemmaForCausalLM", False, False),
        ("LlamaForCausalLM", True, True),
    ],
)
def test_tying_defaults_to_that_of_the_config_class(
    *, architecture: str, stated: bool | None, tied: bool
) -> None:
    """An absent `tie_word_embeddings` means what the family's config class means."""
    spec = read(llama(architectures=[architecture], tie_word_embeddings=stated))

    assert spec.tie_word_embeddings is tied


def test_prediction_layers_are_kept_apart_from_the_stack() -> None:
    """Multi-token-prediction layers are counted, and made like the last layers."""
    spec = read(UNUSUAL["GLM-5"])

    assert spec.mtp_layers == 1
    assert spec.num_layers == 78
    assert spec.mtp_layer is not None
    assert isinstance(spec.mtp_layer.feed_forward, MixtureOfExperts)


@pytest.mark.parametrize("architecture", ["Exaone4ForCausalLM", "MistralForCausalLM"])
@pytest.mark.parametrize("window", [None, 0])
def test_a_window_that_is_switched_off_makes_full_layers(
    architecture: str, window: int | None
) -> None:
    """EXAONE 4 of 1.2B has the pattern of its family but no window; vLLM reads 0 alike."""
    spec = read(llama(architectures=[architecture], sliding_window=window))

    assert [g.mixer.window for g in spec.layers] == [None]  # type: ignore[union-attr]


def test_a_window_that_is_left_out_is_asked_for() -> None:
    """A family with sliding layers needs their width."""
    with pytest.raises(UnsupportedArchitecture, match="sliding_window"):
        read(llama(architectures=["Gemma2ForCausalLM"]))


def test_a_slip_in_the_architecture_gets_a_hint() -> None:
    """Near names help with a misspelt architecture."""
    with pytest.raises(UnsupportedArchitecture, match="LlamaForCausalLM"):
        read(llama(architectures=["LamaForCausalLM"]))


def test_qwen_slides_from_max_window_layers_on() -> None:
    """With `use_sliding_window` the first `max_window_layers` layers still attend to everything."""
    spec = read(
        llama(
            architectures=["Qwen2ForCausalLM"],
            use_sliding_window=True,
            sliding_window=4096,
            max_window_layers=20,
        )
    )

    counts = {g.mixer.window: g.count for g in spec.layers}  # type: ignore[union-attr]

    assert counts == {None: 20, 4096: 12}


def test_a_nested_text_section_leans_on_the_defaults_of_its_class() -> None:
    """Gemma 3 4B publishes only what differs from its config class, and is read all the same."""
    config = dict(UNUSUAL["gemma-3-4b"])
    kept = ("hidden_size", "intermediate_size", "model_type", "num_hidden_layers", "rope_scaling")
    text = {key: config["text_config"][key] for key in (*kept, "sliding_window")}

    spec = read({**config, "text_config": text})
    complete = read(config)

    assert (spec.layers, spec.vocab_size, spec.rope_caches) == (
        complete.layers,
        complete.vocab_size,
        complete.rope_caches,
    )
    assert spec.layout_confidence == "medium"
