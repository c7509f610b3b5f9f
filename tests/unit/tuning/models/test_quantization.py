"""What a quantization_config says of each weight."""

from typing import Any

import pytest

from service.tuning.errors import InvalidRequest, UnsupportedArchitecture
from service.tuning.models.formats import bytes_per_weight
from service.tuning.models.hf_config import read_config
from service.tuning.models.module_names import is_understood, weight_format
from service.tuning.models.spec import Quantization, WeightFormat
from tests.unit.tuning.models.published_models import FP8_BLOCKS, llama

LINEAR = "model.layers.3.mlp.down_proj"


def read(section: dict[str, Any]) -> Quantization:
    """Return the quantisation of a Llama with this section."""
    quantization = read_config(
        llama(quantization_config=section), model_id="example/model"
    ).quantization
    assert quantization is not None
    return quantization


def group(weights: dict[str, Any], *targets: str, activations: object = None) -> dict[str, Any]:
    """Return one config group."""
    return {
        "targets": list(targets or ["Linear"]),
        "weights": weights,
        "input_activations": activations,
    }


def compressed(*groups: dict[str, Any], **more: object) -> dict[str, Any]:
    """Return a compressed-tensors section."""
    named = {f"group_{index}": item for index, item in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, **more}


FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
FP8_IN = {"num_bits": 8, "type": "float", "dynamic": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}


@pytest.mark.parametrize(
    ("section", "scheme", "each", "activation_bits"),
    [
        ({"quant_method": "fp8"}, "fp8", 1.0, 8),
        (FP8_BLOCKS, "fp8_block", 1.0, 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 0.51953, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", 0.51953, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8_w8a16", 1.0, None),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "int4", 0.51953, None),
        (compressed(group(FP8, activations=FP8_IN)), "fp8", 1.0, 8),
        (compressed(group({**FP8, "strategy": "block"})), "fp8_block", 1.0, None),
        (compressed(group(INT8, activations=FP8_IN)), "int8_w8a8", 1.0, 8),
        (compressed(group(INT8)), "int8_w8a16", 1.0, None),
        (compressed(group(INT4)), "int4", 0.515625, None),
        (compressed(group({**INT4, "symmetric": False})), "int4", 0.51953, None),
        (compressed(group(NVFP4, activations=NVFP4)), "nvfp4", 0.5625, 4),
        (compressed(group(NVFP4)), "nvfp4", 0.5625, None),
        (compressed(group({**NVFP4, "group_size": 32})), "mxfp4", 0.53125, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 1.0, 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 0.5625, 4),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", 0.516, None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8_w8a16", 1.0, None),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}},
            "fp8",
            1.0,
            8,
        ),
    ],
)
def test_each_method_stores_its_own_bytes(
    section: dict[str, Any], scheme: str, each: float, activation_bits: int | None
) -> None:
    """A method and its options fix the scheme, the bytes and the activations of its GEMM."""
    stored = weight_format(read(section), LINEAR)

    assert stored is not None
    assert stored.scheme == scheme
    assert bytes_per_weight(stored) == pytest.approx(each, abs=5e-4)
    assert stored.activation_bits == activation_bits


def test_a_file_of_modelopt_alone_is_understood() -> None:
    """ModelOpt's own file nests its algorithm and has no `quant_method`."""
    quantization = read(
        {
            "producer": {"name": "modelopt"},
            "quantization": {
                "quant_algo": "NVFP4",
                "kv_cache_quant_algo": "FP8",
                "exclude_modules": ["lm_head", "model.layers.3.mlp*"],
            },
        }
    )

    assert quantization.kv_cache_bits == 8
    assert weight_format(quantization, LINEAR) is None
    assert weight_format(quantization, "model.layers.4.mlp.down_proj") is not None


def test_mixed_precision_follows_its_groups() -> None:
    """Each module takes the format of the group that names it; the rest stays whole."""
    quantization = read(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "config_groups": {
                "group_0": group(FP8, "model.language_model.layers.*.self_attn.o_proj"),
                "group_1": group(NVFP4, "lm_head", "model.language_model.layers.*.mlp.down_proj"),
            },
        }
    )
    schemes = {
        name: stored.scheme if (stored := weight_format(quantization, name)) else None
        for name in (LINEAR, "model.layers.0.self_attn.o_proj", "lm_head", "model.layers.0.mlp.x")
    }

    assert list(schemes.values()) == ["nvfp4", "fp8", "nvfp4", None]
    assert quantization.scheme == "mixed"
    assert quantization.quantizes_head


def test_a_named_group_goes_before_the_general_one() -> None:
    """A group that names modules wins over the one for all linear layers."""
    quantization = read(compressed(group(INT4), group(FP8, "re:.*mlp.down_proj")))
    stored = weight_format(quantization, LINEAR)

    assert stored is not None
    assert stored.scheme == "fp8"


@pytest.mark.parametrize(
    ("pattern", "is_ignored"),
    [
        ("model.layers.3.mlp.down_proj", True),
        ("model.language_model.layers.3.mlp.down_proj", True),
        ("language_model.model.layers.3.mlp", True),
        ("down_proj", True),
        ("down", False),
        ("model.layers.*.mlp.*", True),
        ("model.layers.3*", True),
        ("model.layers.33*", False),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", True),
        ("re:.*self_attn.*", False),
        ("re:.*down_proj$", True),
        (r"re:model\.layers\.\d+\.mlp(\..*)?$", True),
        (r"re:.*layers\.[0-9]+\.mlp", True),
        (r"re:model.layers.(?:1|2)\.mlp", False),
        ("lm_head", False),
    ],
)
def test_patterns_name_modules_as_checkpoints_do(pattern: str, *, is_ignored: bool) -> None:
    """Plain names match whole components, globs and expressions the full name."""
    quantization = read({**FP8_BLOCKS, "modules_to_not_convert": [pattern]})

    assert (weight_format(quantization, LINEAR) is None) is is_ignored


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(.*)*x", "re:[", "re:" + "a?" * 40])
def test_an_expression_that_could_run_for_ever_is_left_out(pattern: str) -> None:
    """Patterns come from callers: what cannot be matched in linear time lowers confidence."""
    spec = read_config(
        llama(quantization_config={**FP8_BLOCKS, "ignored_layers": [pattern]}),
        model_id="example/model",
    )

    assert not is_understood(pattern)
    assert spec.layout_confidence == "low"


def test_more_patterns_than_any_checkpoint_has_are_refused() -> None:
    """A list of thousands of wild cards is a mistake."""
    with pytest.raises(InvalidRequest, match="at most"):
        read({**FP8_BLOCKS, "modules_to_not_convert": [f"*x{i}*" for i in range(1000)]})


def test_mxfp4_of_gpt_oss_covers_experts_only() -> None:
    """Attention of gpt-oss stays in 16 bit."""
    quantization = read({"quant_method": "mxfp4"})

    assert weight_format(quantization, LINEAR) is None
    assert weight_format(quantization, "model.layers.0.mlp.experts.0.up_proj", is_expert=True)


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "gguf"},
        {"quant_method": "auto-round", "bits": 4, "group_size": 128},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "hqq"},
    ],
)
def test_a_layout_the_config_does_not_give_has_low_confidence(section: dict[str, Any]) -> None:
    """Where the stored bits are not stated the answer says how little is known."""
    spec = read_config(llama(quantization_config=section), model_id="example/model")

    assert spec.quantization is not None
    assert not spec.quantization.layout_known
    assert spec.layout_confidence == "low"


def test_a_method_that_no_release_has_is_refused_by_name() -> None:
    """The bytes of a format that vLLM does not load are not guessed."""
    with pytest.raises(UnsupportedArchitecture, match="zzz") as refused:
        read_config(llama(quantization_config={"quant_method": "zzz"}), model_id="example/model")

    assert refused.value.pointer == "/model/config/quantization_config/quant_method"


def test_exceptions_of_auto_round_make_its_layout_known() -> None:
    """`extra_config` names the modules that keep 16 bits or take other ones."""
    quantization = read(
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "extra_config": {
                "model.layers.3.mlp.down_proj": {"bits": 16},
                ".*self_attn.*": {"bits": 8},
            },
        }
    )
    attention = weight_format(quantization, "model.layers.3.self_attn.o_proj")

    assert quantization.layout_known
    assert weight_format(quantization, LINEAR) is None
    assert attention is not None
    assert attention.bits == 8


def test_gptq_exceptions_are_followed() -> None:
    """`dynamic` leaves modules out or gives them other bits."""
    quantization = read(
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "lm_head": True,
            "dynamic": {"-:.*down_proj": {}, "+:.*up_proj": {"bits": 8}},
        }
    )
    up = weight_format(quantization, "model.layers.3.mlp.up_proj")

    assert weight_format(quantization, LINEAR) is None
    assert up is not None
    assert up.bits == 8
    assert weight_format(quantization, "lm_head") is not None


def test_the_head_stays_whole_unless_named() -> None:
    """Linear layers do not include the output head."""
    assert weight_format(read({"quant_method": "fp8"}), "lm_head") is None


def test_the_method_must_be_named() -> None:
    """A section without a method says nothing."""
    with pytest.raises(UnsupportedArchitecture) as refusal:
        read({"bits": 4})

    assert refusal.value.missing == ("quant_method",)


def test_a_group_size_of_zero_is_refused() -> None:
    """Scales for groups of nothing make no sense."""
    with pytest.raises(InvalidRequest) as refusal:
        read({"quant_method": "gptq", "bits": 4, "group_size": 0})

    assert refusal.value.pointer == "/model/config/quantization_config/group_size"


def test_smaller_groups_cost_more() -> None:
    """More scales mean more bytes."""
    sizes = [
        bytes_per_weight(WeightFormat(scheme="int4", bits=4.0, group_size=size))
        for size in (32, 64, 128, None)
    ]

    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0.5


def test_an_excerpt_without_groups_means_what_its_format_usually_means() -> None:
    """The name of a compressed-tensors format gives its bytes, with low confidence."""
    quantization = read({"quant_method": "compressed-tensors", "format": "int-quantized w8a8"})
    stored = weight_format(quantization, LINEAR)

    assert stored is not None
    assert bytes_per_weight(stored) == 1.0
    assert not quantization.layout_known
