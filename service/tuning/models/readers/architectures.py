"""Which family every known architecture belongs to.

Traits are those of the modelling code of transformers 5.24 and vLLM 0.33: the default of
`tie_word_embeddings` of each config class, gated or plain MLP, biases, window patterns.
"""

from collections.abc import Mapping

import msgspec

from service.tuning.models.readers import hybrid, mixed
from service.tuning.models.readers.family import Family
from service.tuning.models.readers.fields import ConfigFields


def _four_times(fields: ConfigFields, hidden_size: int) -> int:
    del fields
    return 4 * hidden_size


def _falcon_kv_heads(fields: ConfigFields, heads: int) -> int:
    """Falcon: grouped in the new decoder, else one head with `multi_query`."""
    if fields.flag("new_decoder_architecture"):
        return fields.integer_or(heads, "num_kv_heads", "n_head_kv", maximum=2**16)
    return 1 if fields.flag("multi_query", default=True) else heads


def _bigcode_kv_heads(fields: ConfigFields, heads: int) -> int:
    return 1 if fields.flag("multi_query", default=True) else heads


def _chatglm_kv_heads(fields: ConfigFields, heads: int) -> int:
    if fields.flag("multi_query_attention"):
        return fields.integer("multi_query_group_num", maximum=2**16)
    return heads


def _qwen1_width(fields: ConfigFields, hidden_size: int) -> int:
    del hidden_size
    return fields.integer("intermediate_size") // 2 or 1


_LLAMA = Family()
_QWEN2 = Family(qkv_bias=True, window_used=False)
_QWEN3 = Family(qk_norm=True, window_used=False)
_QWEN2_MOE = Family(qkv_bias=True, window_used=False, shared_experts="required")
_QWEN3_MOE = Family(qk_norm=True, window_used=False)
_QWEN3_VL = msgspec.structs.replace(_QWEN3, multimodal_rope_factor=1)
_GEMMA = Family(tied=True)
_GEMMA2 = Family(tied=True, full_every=2, norms_per_layer=4)
_GEMMA3 = Family(
    tied=True,
    full_every=6,
    norms_per_layer=4,
    qk_norm=True,
    has_local_rope=True,
    unstated_rope_factor=8.0,
)
_GEMMA3N = Family(layers=mixed.gemma3n, tied=True, norms_per_layer=5, has_local_rope=True)
_GEMMA4 = Family(
    layers=mixed.gemma4, tied=True, norms_per_layer=4, qk_norm=True, has_local_rope=True
)
_EXPERTS_AS_MLP = Family(expert_width="intermediate_size")
_DEEPSEEK = Family()
_GLM4_MOE = Family(qkv_bias=True)
_PLAIN = Family(gated=False)
_GPT = Family(
    gated=False,
    tied=True,
    qkv_bias=True,
    rotary=False,
    intermediate=_four_times,
    position_embeddings="learned",
)
_EAGLE = Family(joined_hidden_states=2)
_EAGLE3 = Family(joined_hidden_states=3)
_EAGLE3_QWEN3 = Family(joined_hidden_states=3, qk_norm=True, window_used=False)
_GDN = Family(
    layers=hybrid.gated_delta_net,
    full_every=4,
    other_kind="linear",
    output_gate=True,
    qk_norm=True,
    multimodal_rope_factor=1,
    mtp_layers=1,
)
_GDN_MOE = msgspec.structs.replace(_GDN, shared_experts="required")


def _seen(family: Family, tower: str) -> Family:
    return msgspec.structs.replace(family, vision=tower)


FAMILIES: Mapping[str, Family] = {
    # Llama and what follows its layout
    "LlamaForCausalLM": _LLAMA,
    "LLaMAForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Ministral3ForCausalLM": _LLAMA,
    "YiForCausalLM": _LLAMA,
    "AquilaForCausalLM": _LLAMA,
    "AquilaModel": _LLAMA,
    "InternLMForCausalLM": _LLAMA,
    "InternLM2ForCausalLM": _LLAMA,
    "InternLM3ForCausalLM": _LLAMA,
    "BaichuanForCausalLM": _LLAMA,
    "BaiChuanForCausalLM": _LLAMA,
    "OrionForCausalLM": _LLAMA,
    "XverseForCausalLM": _LLAMA,
    "TeleChat2ForCausalLM": _LLAMA,
    "SmolLM3ForCausalLM": Family(tied=True, window_used=False),
    "SolarForCausalLM": _LLAMA,
    "SeedOssForCausalLM": Family(qkv_bias=True),
    "MiMoForCausalLM": _QWEN2,
    "Phi3ForCausalLM": _LLAMA,
    "GraniteForCausalLM": _LLAMA,
    "MiniCPMForCausalLM": Family(tied=True),
    "OlmoForCausalLM": _LLAMA,
    "Olmo2ForCausalLM": Family(qk_norm=True),
    "Olmo3ForCausalLM": Family(qk_norm=True, full_every=4, has_local_rope=True),
    "HunYuanDenseV1ForCausalLM": Family(qk_norm=True),
    "Ernie4_5ForCausalLM": Family(tied=True),
    "Ernie4_5_ForCausalLM": Family(tied=True),
    "StableLmForCausalLM": _LLAMA,
    "StableLMEpochForCausalLM": _LLAMA,
    "ExaoneForCausalLM": Family(tied=False),
    "Exaone4ForCausalLM": Family(qk_norm=True, full_every=4),
    "CohereForCausalLM": Family(tied=True, norms_per_layer=1),
    "Cohere2ForCausalLM": Family(tied=True, norms_per_layer=1, full_every=4),
    "GlmForCausalLM": Family(qkv_bias=True),
    "Glm4ForCausalLM": Family(qkv_bias=True, norms_per_layer=4),
    "ChatGLMModel": Family(qkv_bias=True, kv_heads=_chatglm_kv_heads),
    "ChatGLMForConditionalGeneration": Family(qkv_bias=True, kv_heads=_chatglm_kv_heads),
    "QWenLMHeadModel": Family(qkv_bias=True, dense_width="", intermediate=_qwen1_width),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2ForRewardModel": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "DeciLMForCausalLM": Family(layers=mixed.decilm),
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA2,
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _seen(_GEMMA3, "gemma3"),
    "Gemma3nForCausalLM": _GEMMA3N,
    "Gemma3nForConditionalGeneration": _seen(_GEMMA3N, "gemma3n"),
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _seen(_GEMMA4, "gemma4"),
    # MLPs of two matrices
    "PhiForCausalLM": Family(gated=False, qkv_bias=True, norms_per_layer=1),
    "Starcoder2ForCausalLM": Family(gated=False, tied=True, qkv_bias=True),
    "NemotronForCausalLM": _PLAIN,
    "ArceeForCausalLM": _PLAIN,
    "ApertusForCausalLM": Family(gated=False, qk_norm=True),
    "PersimmonForCausalLM": Family(gated=False, qkv_bias=True),
    "FalconForCausalLM": Family(
        gated=False, tied=True, kv_heads=_falcon_kv_heads, intermediate=_four_times
    ),
    "RWForCausalLM": Family(
        gated=False, tied=True, kv_heads=_falcon_kv_heads, intermediate=_four_times
    ),
    "GPTNeoXForCausalLM": Family(gated=False, qkv_bias=True),
    "GPTJForCausalLM": Family(gated=False, intermediate=_four_times),
    "GPT2LMHeadModel": _GPT,
    "GPTBigCodeForCausalLM": msgspec.structs.replace(_GPT, kv_heads=_bigcode_kv_heads),
    "OPTForCausalLM": msgspec.structs.replace(_GPT, position_embeddings="offset"),
    "BloomForCausalLM": msgspec.structs.replace(_GPT, position_embeddings="none"),
    "MPTForCausalLM": Family(gated=False, tied=True, rotary=False, intermediate=_four_times),
    # Mixtures of experts
    "MixtralForCausalLM": _EXPERTS_AS_MLP,
    "OlmoeForCausalLM": Family(expert_width="intermediate_size", qk_norm=True),
    "PhiMoEForCausalLM": Family(expert_width="intermediate_size", qkv_bias=True),
    "GraniteMoeForCausalLM": _EXPERTS_AS_MLP,
    "GraniteMoeSharedForCausalLM": _EXPERTS_AS_MLP,
    "MiniMaxM2ForCausalLM": Family(expert_width="intermediate_size", qk_norm=True),
    "DbrxForCausalLM": Family(layers=mixed.dbrx),
    "GptOssForCausalLM": Family(
        expert_width="intermediate_size", full_every=2, qkv_bias=True, has_sinks=True
    ),
    "Qwen2MoeForCausalLM": _QWEN2_MOE,
    "Qwen3MoeForCausalLM": _QWEN3_MOE,
    "DeepseekForCausalLM": _LLAMA,
    "Glm4MoeForCausalLM": _GLM4_MOE,
    "Ernie4_5_MoeForCausalLM": Family(tied=True),
    "HunYuanMoEV1ForCausalLM": Family(qk_norm=True),
    "BailingMoeForCausalLM": _LLAMA,
    "BailingMoeV2ForCausalLM": Family(qk_norm=True),
    "Dots1ForCausalLM": Family(qk_norm=True),
    "FlexOlmoForCausalLM": Family(expert_width="intermediate_size", qk_norm=True),
    "MiMoV2FlashForCausalLM": Family(
        layers=mixed.mimo_v2, rotary_factor=0.334, has_local_rope=True
    ),
    "Llama4ForCausalLM": Family(
        expert_width="intermediate_size",
        dense_width="intermediate_size_mlp",
        shared_experts="one",
        full_every=4,
        other_kind="chunked",
        qk_norm=True,
    ),
    # Latent attention
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "KimiK2ForCausalLM": _DEEPSEEK,
    "Glm4MoeLiteForCausalLM": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": _DEEPSEEK,
    "MistralLarge3ForCausalLM": _DEEPSEEK,
    "KimiVLForConditionalGeneration": _seen(_DEEPSEEK, "moonvit"),
    "KimiK25ForConditionalGeneration": _seen(_DEEPSEEK, "moonvit"),
    # Recurrent layers
    "Qwen3NextForCausalLM": _GDN_MOE,
    "Qwen3_5ForCausalLM": _GDN,
    "Qwen3_5MoeForCausalLM": _GDN_MOE,
    "Qwen3_5ForConditionalGeneration": _seen(_GDN, "qwen3_vl"),
    "Qwen3_5MoeForConditionalGeneration": _seen(_GDN_MOE, "qwen3_vl"),
    "KimiLinearForCausalLM": Family(layers=hybrid.kimi_linear, rotary=False, state_bytes=4),
    "MiniMaxText01ForCausalLM": Family(
        layers=hybrid.minimax_lightning, expert_width="intermediate_size"
    ),
    "MiniMaxM1ForCausalLM": Family(
        layers=hybrid.minimax_lightning, expert_width="intermediate_size"
    ),
    "NemotronHForCausalLM": Family(
        layers=hybrid.nemotron_h, gated=False, norms_per_layer=1, rotary=False, state_bytes=4
    ),
    "JambaForCausalLM": Family(layers=hybrid.jamba, expert_width="intermediate_size", rotary=False),
    "BambaForCausalLM": Family(layers=hybrid.bamba),
    "GraniteMoeHybridForCausalLM": Family(
        layers=hybrid.granite_hybrid, expert_width="intermediate_size", tied=True
    ),
    "FalconH1ForCausalLM": Family(layers=hybrid.falcon_h1, norms_per_layer=1),
    "Mamba2ForCausalLM": Family(layers=hybrid.pure_mamba2, norms_per_layer=1, rotary=False),
    "MambaForCausalLM": Family(
        layers=hybrid.pure_mamba1, norms_per_layer=1, rotary=False, tied=True
    ),
    "FalconMambaForCausalLM": Family(
        layers=hybrid.pure_mamba1, norms_per_layer=1, rotary=False, tied=True
    ),
    # Heads for speculation, which stand on a target model
    "EagleLlamaForCausalLM": _EAGLE,
    "EagleMistralForCausalLM": _EAGLE,
    "LlamaForCausalLMEagle": _EAGLE,
    "Eagle3LlamaForCausalLM": _EAGLE3,
    "LlamaForCausalLMEagle3": _EAGLE3,
    "Eagle3MiniMaxM2ForCausalLM": _EAGLE3,
    "Eagle3Qwen2_5vlForCausalLM": _EAGLE3,
    "Eagle3Qwen3vlForCausalLM": _EAGLE3,
    "Eagle3Qwen3ForCausalLM": _EAGLE3_QWEN3,
    # Images or audio in front; the text part is read from its own section when there is one
    "Qwen2VLForConditionalGeneration": _seen(_QWEN2, "qwen2_vl"),
    "Qwen2_5_VLForConditionalGeneration": _seen(_QWEN2, "qwen2_5_vl"),
    "Qwen3VLForConditionalGeneration": _seen(_QWEN3_VL, "qwen3_vl"),
    "Qwen3VLMoeForConditionalGeneration": _seen(_QWEN3_VL, "qwen3_vl"),
    "Qwen2AudioForConditionalGeneration": _seen(_QWEN2, "qwen2_audio"),
    "Mistral3ForConditionalGeneration": _seen(_LLAMA, "pixtral"),
    "PixtralForConditionalGeneration": _seen(_LLAMA, "pixtral"),
    "Llama4ForConditionalGeneration": Family(
        expert_width="intermediate_size",
        dense_width="intermediate_size_mlp",
        shared_experts="one",
        full_every=4,
        other_kind="chunked",
        qk_norm=True,
        vision="llama4",
    ),
    "LlavaForConditionalGeneration": _seen(_LLAMA, "llava"),
    "LlavaNextForConditionalGeneration": _seen(_LLAMA, "llava_next"),
    "LlavaOnevisionForConditionalGeneration": _seen(_LLAMA, "llava_onevision"),
    "Idefics3ForConditionalGeneration": _seen(_LLAMA, "idefics3"),
    "SmolVLMForConditionalGeneration": _seen(_LLAMA, "idefics3"),
    "VoxtralForConditionalGeneration": _seen(_LLAMA, "voxtral"),
    "PaliGemmaForConditionalGeneration": _seen(_GEMMA, "paligemma"),
    "InternVLChatModel": _seen(_LLAMA, "internvl"),
    "InternVLForConditionalGeneration": _seen(_LLAMA, "internvl"),
    "Glm4vForConditionalGeneration": _seen(Family(qkv_bias=True, norms_per_layer=4), "glm4v"),
    "Glm4vMoeForConditionalGeneration": _seen(_GLM4_MOE, "glm4v"),
}

REFUSED: Mapping[str, str] = {
    "DeepseekV4ForCausalLM": "compressed key/value streams beside sliding latent attention",
    "MllamaForConditionalGeneration": "cross-attention layers with a cache per image",
    "WhisperForConditionalGeneration": "an encoder-decoder with a cross-attention cache",
    "KimiK3ForConditionalGeneration": "latent experts beside residual attention blocks",
    "MiniMaxM3ForCausalLM": "block-sparse attention with an index cache",
    "MiniMaxM3SparseForConditionalGeneration": "block-sparse attention with an index cache",
    "Phi3SmallForCausalLM": "block-sparse attention",
}
"""Architectures that vLLM runs and that are refused here, with what is missing."""

TEXT_MODEL_TYPES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
}
"""The architecture of a nested text section that names only its model type."""
