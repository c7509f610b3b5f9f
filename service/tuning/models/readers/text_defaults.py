"""What a nested text section means by what it leaves out.

Published image models of these types state only what differs from the defaults of their config
class; the values are those of transformers 5.24 (models/<type>/configuration_<type>.py).
"""

from collections.abc import Mapping

from service.tuning.models.readers.fields import ConfigFields

_COMMON = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
_GEMMA3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": {
        **_COMMON,
        "vocab_size": 32_000,
        "intermediate_size": 11_008,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        **_COMMON,
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
    },
    "gemma": {
        "vocab_size": 256_000,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
        "max_position_embeddings": 8192,
    },
    "gemma2": {
        "vocab_size": 256_000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "gemma3_text": _GEMMA3,
}


def with_text_defaults(section: ConfigFields) -> tuple[ConfigFields, bool]:
    """Return a nested text section with its class's defaults, and whether it needed any."""
    defaults = _DEFAULTS.get(section.text("model_type") or "", {})
    absent = {key: value for key, value in defaults.items() if not section.states(key)}
    return section.extended(absent), bool(absent)
