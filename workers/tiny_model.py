"""A model with random weights, small enough for a CPU: `python -m workers.tiny_model FOLDER`.

It runs in any Python with numpy: the tokenizer is written as the JSON that the `tokenizers` library
reads (one token per word), and the weights as a safetensors file, whose format is a length, a JSON
header and the raw tensors.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 128, 2, 4, 2, 32
VOCABULARY = 2048
LONGEST = 4096
_SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
_Tensors = dict[str, NDArray[np.float32]]
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 3 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": LONGEST,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


def write_tiny_model(folder: Path) -> Path:
    """Write config, tokenizer and weights; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {
        "config.json": CONFIG,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": LONGEST,
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    _write_safetensors(folder / "model.safetensors", dict(_weights()))
    return folder


def _tokenizer() -> dict[str, Any]:
    """Return a tokenizer that splits at spaces: random token ids survive a round trip as text."""
    words = [*_SPECIAL, *_words(VOCABULARY - len(_SPECIAL))]
    special = [
        {
            "id": number,
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, word in enumerate(_SPECIAL)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }


def _words(count: int) -> list[str]:
    syllables = [c + v for c in _CONSONANTS for v in _VOWELS]
    return [a + b for a in syllables for b in syllables][:count]


def _weights() -> Iterator[tuple[str, NDArray[np.float32]]]:
    generator = np.random.default_rng(0)

    def matrix(*shape: int) -> NDArray[np.float32]:
        return (0.02 * generator.standard_normal(shape)).astype(np.float32)

    queries, pairs = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", matrix(VOCABULARY, HIDDEN)
    yield "lm_head.weight", matrix(VOCABULARY, HIDDEN)
    yield "model.norm.weight", np.ones(HIDDEN, np.float32)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}.{norm}.weight", np.ones(HIDDEN, np.float32)
        yield f"{prefix}.self_attn.q_proj.weight", matrix(queries, HIDDEN)
        yield f"{prefix}.self_attn.k_proj.weight", matrix(pairs, HIDDEN)
        yield f"{prefix}.self_attn.v_proj.weight", matrix(pairs, HIDDEN)
        yield f"{prefix}.self_attn.o_proj.weight", matrix(HIDDEN, queries)
        yield f"{prefix}.mlp.gate_proj.weight", matrix(3 * HIDDEN, HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", matrix(3 * HIDDEN, HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", matrix(HIDDEN, 3 * HIDDEN)


def _write_safetensors(path: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs, offset = [], 0
    for name, tensor in tensors.items():
        # The upper half of a 32-bit float, rounded, is a bfloat16.
        raw = ((tensor.view(np.uint32) + 0x8000) >> 16).astype("<u2").tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        blobs.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        file.writelines(blobs)


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] + ".")
    _parser.add_argument("folder", type=Path, help="where the model is written")
    write_tiny_model(_parser.parse_args().folder)
