"""The model catalogue: what it holds, how it is asked, what it refuses."""

import pytest

from api_schemas.model import Lora, ModelRef
from service.tuning.errors import UnknownModel, UnsupportedArchitecture
from service.tuning.models.catalogue import (
    ModelEntry,
    all_models,
    catalogue_version,
    find_model,
    model_source,
    resolve_model,
)
from service.tuning.models.entries import entries, sources
from service.tuning.models.inventory import weights
from service.tuning.models.spec import ModelSpec

SUPPORTED = [entry for entry in all_models() if entry.is_supported]
COUNTED = [entry for entry in SUPPORTED if entry.parameters is not None]
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


def resolve(entry: ModelEntry) -> ModelSpec:
    return resolve_model(ModelRef(id=entry.id))


def stored_parameters(spec: ModelSpec) -> int:
    """Count what a checkpoint stores: nothing computed at load time, tied heads once."""
    return sum(
        tensor.parameters
        for tensor in weights(spec)
        if tensor.kind not in {"rotary_cache", "mla_absorbed"}
        and not (tensor.kind == "head" and spec.tie_word_embeddings)
    )


def test_at_least_a_hundred_models_rest_on_evidence() -> None:
    """Read files, logs or parameter arithmetic stand behind at least a hundred ids."""
    evident = [entry.id for entry in SUPPORTED if entry.verified != "unverified"]

    assert len(evident) >= 100


@pytest.mark.parametrize(
    "model_id",
    [
        "meta-llama/Llama-2-7b-chat-hf",
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.3-70B-Instruct",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        "Qwen/Qwen2.5-72B-Instruct",
        "Qwen/Qwen3-32B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen3.5-27B",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "mistralai/Devstral-Small-2507",
        "google/gemma-2-9b-it",
        "google/gemma-3-27b-it",
        "google/gemma-4-31B-it",
        "microsoft/phi-4",
        "deepseek-ai/DeepSeek-R1",
        "deepseek-ai/DeepSeek-V2-Lite-Chat",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        "moonshotai/Kimi-K2-Thinking",
        "zai-org/GLM-4.5-Air",
        "openai/gpt-oss-120b",
        "ibm-granite/granite-3.3-8b-instruct",
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        "tiiuae/falcon-40b",
        "01-ai/Yi-34B",
        "allenai/OLMo-2-1124-7B-Instruct",
        "CohereLabs/c4ai-command-r-plus",
        "ai21labs/AI21-Jamba-Mini-1.6",
        "MiniMaxAI/MiniMax-M2.5",
        "HuggingFaceTB/SmolLM3-3B",
    ],
)
def test_the_families_people_serve_are_there(model_id: str) -> None:
    """Each family that people serve with vLLM has its members."""
    assert find_model(model_id).id == model_id


def test_every_supported_entry_reads() -> None:
    """The reader understands every config that is offered as supported."""
    for entry in SUPPORTED:
        spec = resolve(entry)

        assert spec.num_layers > 0, entry.id
        assert stored_parameters(spec) > 0, entry.id


def test_refused_entries_say_why() -> None:
    """A known model whose layout is not modelled is refused as such, at the id."""
    refused = [entry for entry in all_models() if not entry.is_supported]

    assert refused
    for entry in refused:
        with pytest.raises(UnsupportedArchitecture) as refusal:
            resolve(entry)
        assert refusal.value.pointer == "/model/id"


@pytest.mark.parametrize("entry", COUNTED, ids=lambda entry: entry.id)
def test_the_inventory_gives_the_stated_parameters(entry: ModelEntry) -> None:
    """The weights of a config add up to what the model's card states, within one percent."""
    assert stored_parameters(resolve(entry)) == pytest.approx(entry.parameters, rel=0.01)


def test_arithmetic_evidence_has_a_count() -> None:
    """Nobody claims parameter arithmetic without a number to compare with."""
    for entry in SUPPORTED:
        if entry.verified == "arithmetic":
            assert entry.parameters is not None, entry.id


def test_every_entry_names_its_source() -> None:
    """The source of a config is known, and variants name the model they follow."""
    for entry in all_models():
        assert entry.source in sources(), entry.id
        assert model_source(entry)
        assert entry.base is None or entry.base in entries()


def test_what_nobody_checked_is_marked() -> None:
    """A remembered config is never read with full confidence."""
    for entry in SUPPORTED:
        if entry.verified == "unverified":
            assert resolve(entry).layout_confidence != "high", entry.id


@pytest.mark.parametrize(
    ("spelling", "model_id"),
    [
        ("META-LLAMA/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct-AWQ"),
        ("neuralmagic/Meta-Llama-3-8B-Instruct-FP8", "RedHatAI/Meta-Llama-3-8B-Instruct-FP8"),
    ],
)
def test_spellings(spelling: str, model_id: str) -> None:
    """Case, former names and bare names lead to the same entry."""
    assert find_model(spelling).id == model_id


def test_no_spelling_is_claimed_twice() -> None:
    """An alias belongs to one model only and is no other model's id."""
    ids = {entry.id.casefold() for entry in all_models()}
    aliases = [alias.casefold() for entry in all_models() for alias in entry.aliases]

    assert len(aliases) == len(set(aliases))
    assert not ids.intersection(aliases)


def test_the_callers_id_stays() -> None:
    """The spec carries the id that was asked for, since vLLM will be started with it."""
    asked = "meta-llama/Meta-Llama-3.1-8B-Instruct"

    assert resolve_model(ModelRef(id=asked)).id == asked


def test_an_unknown_model_is_refused_with_near_names() -> None:
    """No default stands in: the refusal names the field, near ids and the ways out."""
    with pytest.raises(UnknownModel, match=r"Qwen/Qwen3-32B.*config\.json") as refusal:
        resolve_model(ModelRef(id="Qwen/Qwen3-33B"))

    assert refusal.value.pointer == "/model/id"


def test_an_inline_config_wins() -> None:
    """The caller's config is read even when the id is bundled."""
    spec = resolve_model(ModelRef(id="meta-llama/Llama-3.1-8B-Instruct", config=SMALL))

    assert (spec.hidden_size, spec.num_layers) == (256, 2)


def test_an_inline_config_needs_no_known_id() -> None:
    """A private model is described by its config alone."""
    assert resolve_model(ModelRef(id="acme/private", config=SMALL)).id == "acme/private"


def test_stated_bytes_reach_the_spec() -> None:
    """The checkpoint's size that a caller states is kept, bundled or inline."""
    for config in (None, SMALL):
        ref = ModelRef(id="meta-llama/Llama-3.1-8B-Instruct", config=config, weights_bytes=123)

        assert resolve_model(ref).weights_bytes == 123


def test_adapters_leave_the_model_alone() -> None:
    """The spec is the model's; adapters stay on the reference."""
    plain = ModelRef(id="Qwen/Qwen3-8B")
    adapted = ModelRef(id="Qwen/Qwen3-8B", lora=Lora(max_rank=16, max_adapters=4))

    assert resolve_model(plain) == resolve_model(adapted)


def test_a_quantised_variant_differs_only_in_its_weights() -> None:
    """A re-quantised checkpoint keeps the shape and takes fewer bytes."""
    base = resolve_model(ModelRef(id="Qwen/Qwen2.5-7B-Instruct"))
    variant = resolve_model(ModelRef(id="Qwen/Qwen2.5-7B-Instruct-AWQ"))

    assert variant.layers == base.layers
    assert variant.quantization is not None
    assert sum(t.bytes_ for t in weights(variant)) < 0.5 * sum(t.bytes_ for t in weights(base))


def test_the_version_is_short_and_stable() -> None:
    """The content version is a short hexadecimal hash."""
    assert catalogue_version() == catalogue_version()
    assert len(catalogue_version()) == 12
    int(catalogue_version(), 16)
