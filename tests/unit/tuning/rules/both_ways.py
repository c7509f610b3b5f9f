"""For every rule one situation in which it speaks, and a near one in which it stays silent."""

from typing import Any

from api_schemas.model import Lora
from tests.unit.tuning.rules.builders import (
    DEEPSEEK,
    GEMMA_4,
    GPT_OSS,
    LLAMA_70B,
    QWEN_HYBRID,
    QWEN_MOE_FP8,
    workload,
)

Situation = dict[str, Any]
H100S: Situation = {"gpus": 8}
_GEMMA_3 = "google/gemma-3-27b-it"
_QWEN_VL = "Qwen/Qwen2.5-VL-7B-Instruct"
_AWQ = "Qwen/Qwen2.5-7B-Instruct-AWQ"
_MODELOPT = {"model": "nvidia/Gemma-4-26B-A4B-NVFP4", "planned": False}
_MAMBA = "tiiuae/falcon-mamba-7b"

BOTH_WAYS: tuple[tuple[str, Situation, Situation], ...] = (
    # data types
    ("DTY001", {"gpu": "T4", "dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ("DTY002", {"gpu": "T4"}, {"gpu": "T4", "dtype": "half"}),
    ("DTY003", {"dtype": "float16"}, {"dtype": "auto"}),
    ("DTY003", {"dtype": "float16"}, {"dtype": "float16", "gpu": "V100-SXM2-32GB"}),
    ("DTY004", {"model": _GEMMA_3, "dtype": "half"}, {"model": _GEMMA_3, "dtype": "bfloat16"}),
    ("DTY005", {"dtype": "float32"}, {"dtype": "bfloat16"}),
    ("DTY006", {"dtype": "bf16"}, {"dtype": "bfloat16"}),
    ("DTY006", {"dtype": "int8"}, {"dtype": "auto"}),
    # environment
    ("ENV001", {"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}}, {"env": {"HF_HOME": "/data"}}),
    (
        "ENV001",
        {"env": {"VLLM_USE_V1": "0"}, "release": "0.11.0"},
        {"env": {"VLLM_USE_V1": "0"}, "release": "0.10.2"},
    ),
    (
        "ENV001",
        {"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "release": "0.15.0"},
        {"env": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "release": "0.14.1"},
    ),
    (
        "ENV002",
        {
            "env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"},
            "gpu_memory_utilization": 0.94,
        },
        {"env": {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}, "gpu_memory_utilization": 0.85},
    ),
    (
        "ENV003",
        {"env": {"VLLM_PP_LAYER_PARTITION": "16,15"}, "gpus": 2, "pipeline_parallel_size": 2},
        {"env": {"VLLM_PP_LAYER_PARTITION": "17,15"}, "gpus": 2, "pipeline_parallel_size": 2},
    ),
    (
        "ENV004",
        {
            "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            "kv_offloading_size": 16.0,
        },
        {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
    ),
    (
        "ENV005",
        {"env": {"VLLM_CPU_KVCACHE_SPACE": "4"}, "kv_cache_memory_bytes": 2**30},
        {"env": {"VLLM_CPU_KVCACHE_SPACE": "4"}},
    ),
    ("ENV006", {"trust_remote_code": True}, {"trust_remote_code": False}),
    # graphs
    ("GRF001", {"enforce_eager": True}, {"enforce_eager": False}),
    ("GRF001", {"enforce_eager": True}, {"enforce_eager": True, "gpu": "CPU", "planned": False}),
    (
        "GRF002",
        {"max_cudagraph_capture_size": 64, "max_num_seqs": 128},
        {"max_cudagraph_capture_size": 128, "max_num_seqs": 128},
    ),
    (
        "GRF003",
        {"enforce_eager": True, "max_cudagraph_capture_size": 64},
        {"max_cudagraph_capture_size": 64},
    ),
    ("GRF004", {"optimization_level": 0}, {"optimization_level": 2}),
    # hardware
    ("HW010", {"gpu": "V100-SXM2-32GB"}, {"gpu": "V100-SXM2-32GB", "release": "0.10.2"}),
    ("HW011", {"gpu": "T4", "release": "0.9.2"}, {"gpu": "T4", "release": "0.11.0"}),
    (
        "HW012",
        {"model": GPT_OSS, "gpu": "A100-SXM4-80GB", "release": "0.10.1"},
        {
            "model": GPT_OSS,
            "gpu": "A100-SXM4-80GB",
            "release": "0.10.1",
            "env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN_VLLM_V1"},
        },
    ),
    # hybrids
    (
        "HYB001",
        {"model": _MAMBA, "gpus": 8, "tensor_parallel_size": 3, "planned": False},
        {"model": _MAMBA, "gpus": 8, "tensor_parallel_size": 8},
    ),
    (
        "HYB002",
        {"model": QWEN_HYBRID, "max_num_batched_tokens": 512, "max_num_seqs": 64},
        {"model": QWEN_HYBRID, "max_num_batched_tokens": 4096, "max_num_seqs": 64},
    ),
    (
        "HYB003",
        {"model": _GEMMA_3, "disable_hybrid_kv_cache_manager": True},
        {"disable_hybrid_kv_cache_manager": True},
    ),
    (
        "HYB004",
        {"model": QWEN_HYBRID, "release": "0.22.0", "load": workload(shared=2000)},
        {"model": QWEN_HYBRID, "release": "0.26.0", "load": workload(shared=2000)},
    ),
    # KV cache
    ("KVC001", {"kv_cache_dtype": "nvfp4", "release": "0.19.0"}, {"kv_cache_dtype": "nvfp4"}),
    ("KVC001", {"kv_cache_dtype": "int3"}, {"kv_cache_dtype": "fp8"}),
    ("KVC002", {"gpu": "T4", "kv_cache_dtype": "fp8"}, {"gpu": "L4", "kv_cache_dtype": "fp8"}),
    (
        "KVC002",
        {"model": None, "gpu": "V100-SXM2-32GB", "kv_cache_dtype": "fp8"},
        {"model": None, "gpu": "A10", "kv_cache_dtype": "fp8"},
    ),
    (
        "KVC003",
        {"gpu": "RTX-3090", "kv_cache_dtype": "fp8"},
        {"gpu": "RTX-4090", "kv_cache_dtype": "fp8"},
    ),
    (
        "KVC003",
        {"gpu": "RTX-3090", "kv_cache_dtype": "fp8", "attention_backend": "TRITON_ATTN"},
        {"gpu": "RTX-3090", "kv_cache_dtype": "fp8", "attention_backend": "FLASHINFER"},
    ),
    (
        "KVC004",
        {"model": "Qwen/Qwen3-8B-FP8", "kv_cache_dtype": "fp8_e5m2"},
        {"model": "Qwen/Qwen3-8B-FP8", "kv_cache_dtype": "fp8_e4m3"},
    ),
    ("KVC005", {"kv_cache_dtype": "float16"}, {"kv_cache_dtype": "bfloat16"}),
    ("KVC005", {"kv_cache_dtype": "float16"}, {"kv_cache_dtype": "float16", "release": "0.32.0"}),
    ("KVC006", {"model": QWEN_HYBRID, "kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8"}),
    (
        "KVC007",
        {"kv_cache_dtype": "fp8", "max_model_len": 131072},
        {"kv_cache_dtype": "fp8", "max_model_len": 32768},
    ),
    ("KVC008", {"block_size": 8}, {"block_size": 32}),
    ("KVC008", {"block_size": 8, "gpu": None}, {"block_size": 32, "gpu": None}),
    ("KVC009", {"block_size": 48, "release": "0.17.0"}, {"block_size": 48, "release": "0.18.0"}),
    ("KVC010", {"block_size": 128, "release": "0.6.4"}, {"block_size": 128, "release": "0.9.0"}),
    ("KVC011", {"block_size": 32}, {}),
    ("KVC011", {"block_size": 64, "model": QWEN_HYBRID}, {"block_size": 16}),
    (
        "KVC012",
        {"model": DEEPSEEK, "gpus": 8, "attention_backend": "FLASHMLA", "block_size": 16},
        {"model": DEEPSEEK, "gpus": 8, "attention_backend": "FLASHMLA", "block_size": 128},
    ),
    (
        "KVC013",
        {"gpu": "T4", "attention_backend": "FLASH_ATTN"},
        {"gpu": "T4", "attention_backend": "TRITON_ATTN"},
    ),
    ("KVC014", {"attention_backend": "FLASHMLA"}, {"attention_backend": "FLASH_ATTN"}),
    (
        "KVC015",
        {"model": GEMMA_4, "gpu": "RTX-5090", "attention_backend": "FLASHINFER"},
        {"model": GEMMA_4, "attention_backend": "FLASHINFER"},
    ),
    (
        "KVC016",
        {"enable_prefix_caching": False, "load": workload(shared=500)},
        {"enable_prefix_caching": False, "load": workload()},
    ),
    (
        "KVC017",
        {"enable_prefix_caching": True},
        {"enable_prefix_caching": True, "release": "0.6.4"},
    ),
    (
        "KVC017",
        {"enable_prefix_caching": True, "model": QWEN_HYBRID},
        {"enable_prefix_caching": True, "model": QWEN_HYBRID, "release": "0.22.0"},
    ),
    (
        "KVC018",
        {"model": QWEN_HYBRID, "load": workload(shared=300)},
        {"model": QWEN_HYBRID, "load": workload(prompt=9000, shared=8000)},
    ),
    (
        "KVC019",
        {"gpu": "L40S", "kv_cache_dtype": "fp8", "release": "0.9.2"},
        {"gpu": "L40S", "kv_cache_dtype": "fp8", "release": "0.11.0"},
    ),
    # adapters
    (
        "LOR001",
        {"enable_lora": True, "max_lora_rank": 24},
        {"enable_lora": True, "max_lora_rank": 32},
    ),
    (
        "LOR002",
        {"enable_lora": True, "max_lora_rank": 256, "lora": Lora(max_rank=16, max_adapters=4)},
        {"enable_lora": True, "max_lora_rank": 32, "lora": Lora(max_rank=24, max_adapters=4)},
    ),
    (
        "LOR003",
        {"enable_lora": True, "lora": Lora(max_rank=64, max_adapters=1)},
        {"enable_lora": True, "max_lora_rank": 64, "lora": Lora(max_rank=64, max_adapters=1)},
    ),
    (
        "LOR004",
        {"enable_lora": False, "lora": Lora(max_rank=16, max_adapters=1)},
        {"enable_lora": True, "lora": Lora(max_rank=16, max_adapters=1)},
    ),
    ("LOR005", {"max_loras": 4}, {"max_loras": 4, "enable_lora": True}),
    (
        "LOR006",
        {"enable_lora": True, "max_loras": 2, "lora": Lora(max_rank=16, max_adapters=4)},
        {"enable_lora": True, "max_loras": 4, "lora": Lora(max_rank=16, max_adapters=4)},
    ),
    (
        "LOR007",
        {"enable_lora": True, "max_loras": 8, "max_cpu_loras": 4},
        {"enable_lora": True, "max_loras": 8, "max_cpu_loras": 16},
    ),
    (
        "LOR008",
        {"enable_lora": True, "release": "0.7.3", "gpu_memory_utilization": 0.9},
        {"enable_lora": True, "release": "0.9.0", "gpu_memory_utilization": 0.9},
    ),
    # memory
    ("MEM001", {"gpu_memory_utilization": 1.5, "planned": False}, {"gpu_memory_utilization": 0.9}),
    ("MEM002", {"gpu_memory_utilization": 0.97}, {"gpu_memory_utilization": 0.95}),
    ("MEM003", {"gpu_memory_utilization": 0.95}, {"gpu_memory_utilization": 0.92}),
    (
        "MEM003",
        {"gpu_memory_utilization": 0.92, "release": "0.19.0"},
        {"gpu_memory_utilization": 0.92, "release": "0.20.0"},
    ),
    (
        "MEM004",
        {"model": None, "hardware": {"used_memory_gib": 20.0}, "gpu_memory_utilization": 0.9},
        {"model": None, "hardware": {"used_memory_gib": 5.0}, "gpu_memory_utilization": 0.9},
    ),
    (
        "MEM005",
        {"release": "0.8.5", "hardware": {"used_memory_gib": 20.0}},
        {"release": "0.9.1", "hardware": {"used_memory_gib": 20.0}},
    ),
    (
        "MEM006",
        {"gpu_memory_utilization": 0.5},
        {"gpu_memory_utilization": 0.5, "hardware": {"used_memory_gib": 30.0}},
    ),
    (
        "MEM007",
        {"gpu": "GB10", "gpu_memory_utilization": 0.87},
        {"gpu": "GB10", "gpu_memory_utilization": 0.83},
    ),
    ("MEM008", {"kv_cache_memory_bytes": 2**30}, {}),
    (
        "MEM009",
        {"kv_cache_memory_bytes": 70 * 2**30},
        {"kv_cache_memory_bytes": 40 * 2**30},
    ),
    ("MEM010", {"num_gpu_blocks_override": 1000}, {}),
    ("MEM016", {"kv_cache_memory_bytes": -1}, {"kv_cache_memory_bytes": 0}),
    ("MEM011", {"max_model_len": 200_000}, {"max_model_len": 131_072}),
    ("MEM012", {"max_model_len": "auto", "release": "0.13.0"}, {"max_model_len": "auto"}),
    ("MEM012", {"max_model_len": -1, "release": "0.13.0"}, {"max_model_len": -1}),
    ("MEM013", {"max_model_len": 0, "planned": False}, {"max_model_len": 1}),
    (
        "MEM014",
        {"max_model_len": 8192, "load": workload(prompt=12_000)},
        {"max_model_len": 16_384, "load": workload(prompt=12_000)},
    ),
    (
        "MEM015",
        {"max_model_len": 32_768, "load": workload()},
        {"max_model_len": 4096, "load": workload()},
    ),
    # media
    (
        "MMD001",
        {"model": GEMMA_4, "gpus": 2, "max_num_batched_tokens": 512, "max_num_seqs": 16},
        {"model": GEMMA_4, "gpus": 2, "max_num_batched_tokens": 2496, "max_num_seqs": 16},
    ),
    (
        "MMD002",
        {"model": _QWEN_VL, "limit_mm_per_prompt": {"image": 10}, "max_model_len": 32_768},
        {"model": _QWEN_VL, "limit_mm_per_prompt": {"image": 1, "video": 0}},
    ),
    (
        "MMD002",
        {"model": _QWEN_VL, "max_model_len": 8192},
        {"model": _QWEN_VL, "max_model_len": 8192, "language_model_only": True},
    ),
    (
        "MMD003",
        {"model": _QWEN_VL, "limit_mm_per_prompt": {"image": 1}},
        {"model": _QWEN_VL, "limit_mm_per_prompt": {"image": 1, "video": 0}},
    ),
    ("MMD004", {"limit_mm_per_prompt": {"image": 1}}, {}),
    (
        "MMD005",
        {"model": "Qwen/Qwen2.5-VL-72B-Instruct", "gpus": 64, "tensor_parallel_size": 64}
        | {"planned": False},
        {"model": "Qwen/Qwen2.5-VL-72B-Instruct", "gpus": 64, "tensor_parallel_size": 64}
        | {"planned": False, "mm_encoder_tp_mode": "data"},
    ),
    # offloading
    ("OFF001", {"swap_space": 8.0, "release": "0.17.0"}, {"release": "0.17.0"}),
    ("OFF002", {"swap_space": 8.0, "release": "0.6.3"}, {"swap_space": 0.0, "release": "0.6.3"}),
    ("OFF003", {"cpu_offload_gb": 10.0}, {"cpu_offload_gb": 0.0}),
    (
        "OFF004",
        {"kv_offloading_size": 32.0, "gpu": "L4", "max_model_len": 16_384},
        {"kv_offloading_size": 32.0, "max_model_len": 16_384},
    ),
    (
        "OFF005",
        {"kv_offloading_size": 32.0, "enable_prefix_caching": False},
        {"kv_offloading_size": 32.0},
    ),
    (
        "OFF006",
        {"kv_offloading_size": 320.0, "hardware": {"host_memory_gib": 256.0}},
        {"kv_offloading_size": 32.0, "hardware": {"host_memory_gib": 256.0}},
    ),
    # parallelism
    (
        "PAR001",
        {"model": LLAMA_70B, **H100S, "tensor_parallel_size": 5, "planned": False},
        {"model": LLAMA_70B, **H100S, "tensor_parallel_size": 8},
    ),
    (
        "PAR002",
        {"model": QWEN_HYBRID, **H100S, "tensor_parallel_size": 3, "planned": False},
        {"model": QWEN_HYBRID, **H100S, "tensor_parallel_size": 4},
    ),
    (
        "PAR003",
        {"model": "openai-community/gpt2-xl", **H100S, "tensor_parallel_size": 5}
        | {"planned": False},
        {"model": "openai-community/gpt2-xl"},
    ),
    (
        "PAR004",
        {"model": "meta-llama/Llama-3.2-3B", "gpus": 24, "tensor_parallel_size": 24}
        | {"planned": False},
        {"model": "meta-llama/Llama-3.2-3B", "gpus": 8, "tensor_parallel_size": 8},
    ),
    (
        "PAR005",
        {"enable_expert_parallel": True},
        {"model": "Qwen/Qwen3-30B-A3B", "enable_expert_parallel": True},
    ),
    ("PAR006", {**H100S, "tensor_parallel_size": 16}, {**H100S, "tensor_parallel_size": 8}),
    (
        "PAR007",
        {"gpus": 1, "hardware": {"nodes": 2}, "tensor_parallel_size": 2},
        {"gpus": 1, "hardware": {"nodes": 2}, "tensor_parallel_size": 2}
        | {"distributed_executor_backend": "ray"},
    ),
    (
        "PAR008",
        {"model": LLAMA_70B, "gpus": 4, "hardware": {"nodes": 2}, "tensor_parallel_size": 8},
        {"model": LLAMA_70B, "gpus": 8, "tensor_parallel_size": 8},
    ),
    (
        "PAR009",
        {"gpu": "RTX-3090", "gpus": 4, "tensor_parallel_size": 4},
        {**H100S, "tensor_parallel_size": 4},
    ),
    (
        "PAR010",
        {"gpus": 16, "tensor_parallel_size": 16},
        {"gpus": 8, "tensor_parallel_size": 8},
    ),
    (
        "PAR011",
        {"model": DEEPSEEK, "gpu": "H200", **H100S, "tensor_parallel_size": 8},
        {"model": DEEPSEEK, "gpu": "H200", **H100S, "data_parallel_size": 8}
        | {"enable_expert_parallel": True},
    ),
    (
        "PAR012",
        {"gpus": 8, "tensor_parallel_size": 8, "decode_context_parallel_size": 2},
        {"gpus": 16, "tensor_parallel_size": 16, "decode_context_parallel_size": 2},
    ),
    (
        "PAR013",
        {"gpus": 8, "tensor_parallel_size": 4, "prefill_context_parallel_size": 2}
        | {"decode_context_parallel_size": 4, "planned": False, "model": DEEPSEEK},
        {"gpus": 8, "tensor_parallel_size": 4, "prefill_context_parallel_size": 2}
        | {"decode_context_parallel_size": 2, "planned": False, "model": DEEPSEEK},
    ),
    (
        "PAR014",
        {"gpus": 64, "pipeline_parallel_size": 33, "planned": False},
        {"gpus": 64, "pipeline_parallel_size": 32, "planned": False},
    ),
    (
        "PAR015",
        {"gpus": 8, "pipeline_parallel_size": 8},
        {"model": LLAMA_70B, "gpus": 8, "pipeline_parallel_size": 8},
    ),
    (
        "PAR016",
        {"model": QWEN_MOE_FP8, "gpus": 2, "tensor_parallel_size": 2}
        | {"all2all_backend": "deepep_high_throughput"},
        {"model": QWEN_MOE_FP8, "gpus": 2, "tensor_parallel_size": 2}
        | {"all2all_backend": "deepep_high_throughput", "enable_expert_parallel": True},
    ),
    (
        "PAR017",
        {"model": DEEPSEEK, "gpu": "H200", "gpus": 3, "data_parallel_size": 3}
        | {"enable_expert_parallel": True, "planned": False},
        {"model": DEEPSEEK, "gpu": "H200", "gpus": 3, "data_parallel_size": 3}
        | {"enable_expert_parallel": True, "planned": False, "num_redundant_experts": 2},
    ),
    ("PAR018", {"gpus": 8}, {"gpus": 8, "data_parallel_size": 8}),
    ("PAR019", {"load_format": "sharded_state"}, {"load_format": "safetensors"}),
    (
        "PAR020",
        {"model": QWEN_MOE_FP8, "gpus": 2, "data_parallel_size": 2},
        {"model": QWEN_MOE_FP8, "gpus": 2, "data_parallel_size": 2, "enable_expert_parallel": True},
    ),
    (
        "PAR021",
        {"gpu": "H200 MIG 2g.35gb", "gpus": 2, "tensor_parallel_size": 2},
        {"gpu": "H200 MIG 2g.35gb", "gpus": 2},
    ),
    # quantisation
    ("QNT001", {"model": _AWQ, "gpu": "V100-SXM2-32GB"}, {"model": _AWQ, "gpu": "T4"}),
    (
        "QNT001",
        {"gpu": "RTX-3090", "quantization": "fp8", "release": "0.4.1", "planned": False},
        {"gpu": "RTX-3090", "quantization": "fp8"},
    ),
    (
        "QNT002",
        {"model": "Qwen/Qwen3-8B-FP8", "gpu": "A100-SXM4-80GB"},
        {"model": "Qwen/Qwen3-8B-FP8"},
    ),
    ("QNT003", {"model": _AWQ, "quantization": "gptq"}, {"model": _AWQ}),
    ("QNT003", {"quantization": "awq"}, {"quantization": "fp8"}),
    (
        "QNT003",
        _MODELOPT | {"quantization": "compressed-tensors", "release": "0.19.0"},
        _MODELOPT | {"quantization": "compressed-tensors", "release": "0.20.2"},
    ),
    (
        "QNT004",
        {"model": _AWQ, "quantization": "awq", "release": "0.9.2"},
        {"model": _AWQ, "quantization": "awq_marlin", "release": "0.9.2"},
    ),
    ("QNT005", {"model": _AWQ, "quantization": "awq"}, {"model": _AWQ}),
    (
        "QNT006",
        {"model": QWEN_MOE_FP8, "gpus": 4, "tensor_parallel_size": 4, "planned": False}
        | {"release": "0.28.0"},
        {"model": QWEN_MOE_FP8, "gpus": 4, "tensor_parallel_size": 4, "release": "0.28.0"}
        | {"enable_expert_parallel": True},
    ),
    (
        "QNT006",
        {"model": QWEN_MOE_FP8, "gpus": 4, "tensor_parallel_size": 4},
        {"model": QWEN_MOE_FP8, "gpus": 4, "tensor_parallel_size": 4}
        | {"enable_expert_parallel": True},
    ),
    (
        "QNT007",
        {"model": "Qwen/Qwen1.5-14B-Chat-AWQ", "gpus": 2, "tensor_parallel_size": 2}
        | {"planned": False},
        {"model": "Qwen/Qwen1.5-14B-Chat-AWQ"},
    ),
    (
        "QNT008",
        {"model": "Qwen/Qwen3-235B-A22B-GPTQ-Int4", "gpus": 8, "tensor_parallel_size": 8}
        | {"release": "0.20.0"},
        {"model": "Qwen/Qwen3-235B-A22B-GPTQ-Int4", "gpus": 8, "tensor_parallel_size": 4}
        | {"release": "0.20.0"},
    ),
    (
        "QNT009",
        {"quantization": "bitsandbytes", "release": "0.28.0"},
        {"quantization": "bitsandbytes", "release": "0.27.0"},
    ),
    ("QNT010", {"quantization": "nonsense"}, {"quantization": "fp8"}),
    (
        "QNT011",
        {"quantization": "fbgemm_fp8"},
        {"quantization": "fbgemm_fp8", "allow_deprecated_quantization": True},
    ),
    (
        "QNT012",
        {"model": _AWQ, "quantization": "awq", "dtype": "bfloat16", "release": "0.9.2"},
        {"model": _AWQ, "quantization": "awq", "dtype": "half", "release": "0.9.2"},
    ),
    ("QNT013", {"quantization": "bitsandbytes", "release": "0.9.0"}, {"quantization": "fp8"}),
    (
        "QNT014",
        {"model": "RedHatAI/Qwen2.5-72B-Instruct-quantized.w4a16", "gpus": 2}
        | {"tensor_parallel_size": 2},
        {"model": "RedHatAI/Qwen2.5-72B-Instruct-quantized.w4a16"},
    ),
    # scheduler
    (
        "SCH001",
        {"max_num_seqs": 4096, "max_num_batched_tokens": 2048},
        {"max_num_seqs": 2048, "max_num_batched_tokens": 2048},
    ),
    (
        "SCH002",
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096, "max_model_len": 8192},
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 8192, "max_model_len": 8192},
    ),
    (
        "SCH003",
        {"max_num_batched_tokens": 16_384, "max_num_seqs": 2, "max_model_len": 4096},
        {"max_num_batched_tokens": 16_384, "max_num_seqs": 64, "max_model_len": 4096},
    ),
    (
        "SCH020",
        {"max_num_batched_tokens": 4, "max_num_seqs": 2, "load": workload()},
        {"max_num_batched_tokens": 256, "max_num_seqs": 2, "load": workload()},
    ),
    ("SCH004", {"max_num_batched_tokens": 65_536}, {"max_num_batched_tokens": 16_384}),
    (
        "SCH005",
        {"max_num_batched_tokens": 1024, "max_num_seqs": 64},
        {"max_num_batched_tokens": 2048, "max_num_seqs": 64},
    ),
    (
        "SCH006",
        {"max_num_batched_tokens": 512, "max_num_seqs": 64, "load": workload(prompt=130_000)},
        {"max_num_batched_tokens": 8192, "max_num_seqs": 64, "load": workload(prompt=130_000)},
    ),
    ("SCH007", {"max_num_seqs": 8192}, {"max_num_seqs": 512}),
    (
        "SCH008",
        {"gpu": "L4", "max_model_len": 8192, "max_num_seqs": 256, "load": workload(prompt=3000)},
        {"max_model_len": 8192, "max_num_seqs": 64, "load": workload(prompt=3000)},
    ),
    ("SCH009", {"enable_chunked_prefill": False}, {}),
    (
        "SCH010",
        {"enable_chunked_prefill": True},
        {"enable_chunked_prefill": True, "release": "0.7.3"},
    ),
    (
        "SCH011",
        {"max_num_partial_prefills": 4, "release": "0.19.0"},
        {"max_num_partial_prefills": 1, "release": "0.19.0"},
    ),
    (
        "SCH012",
        {"long_prefill_token_threshold": 8192, "max_model_len": 4096},
        {"long_prefill_token_threshold": 2048, "max_model_len": 4096},
    ),
    ("SCH013", {"async_scheduling": True}, {"async_scheduling": True, "release": "0.12.0"}),
    ("SCH014", {"async_scheduling": False}, {}),
    ("SCH015", {"performance_mode": "throughput"}, {"performance_mode": "balanced"}),
    ("SCH016", {"scheduling_policy": "lifo"}, {"scheduling_policy": "priority"}),
    (
        "SCH016",
        {"scheduling_policy": "priority", "release": "0.8.5"},
        {"scheduling_policy": "priority", "release": "0.9.2"},
    ),
    ("SCH017", {"watermark": 1.0}, {"watermark": 0.01}),
    ("SCH018", {"max_num_seqs": 0, "planned": False}, {"max_num_seqs": 1}),
    (
        "SCH019",
        {"gpu": "H200 MIG 2g.35gb"},
        {"gpu": "H200 MIG 2g.35gb", "max_num_seqs": 256, "max_num_batched_tokens": 16_384},
    ),
    # speculation
    (
        "SPC001",
        {"speculative_config": {"method": "ngram"}},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
    ),
    (
        "SPC002",
        {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
        {"model": DEEPSEEK, "gpu": "H200", "gpus": 8, "tensor_parallel_size": 8}
        | {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
    ),
    (
        "SPC002",
        {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
        {"model": GEMMA_4, "gpus": 2}
        | {"speculative_config": {"method": "mtp", "model": "x/d", "num_speculative_tokens": 1}},
    ),
    (
        "SPC003",
        {"model": GEMMA_4, "gpus": 2, "release": "0.20.1"}
        | {"speculative_config": {"model": "x/drafter", "num_speculative_tokens": 4}},
        {"model": GEMMA_4, "gpus": 2, "release": "0.21.0"}
        | {"speculative_config": {"model": "x/drafter", "num_speculative_tokens": 4}},
    ),
    (
        "SPC004",
        {"speculative_config": {"method": "mtp", "num_speculative_tokens": 5}},
        {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
    ),
    (
        "SPC005",
        {"model": "Qwen/Qwen3-0.6B"}
        | {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
    ),
    (
        "SPC006",
        {"load": workload(concurrency=128)}
        | {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
        {"load": workload(concurrency=4)}
        | {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
    ),
    (
        "SPC007",
        {"max_num_batched_tokens": 1024, "max_num_seqs": 512}
        | {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
        {"max_num_batched_tokens": 8192, "max_num_seqs": 512}
        | {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
    ),
    (
        "SPC008",
        {"speculative_config": {"method": "draft_model", "num_speculative_tokens": 3}},
        {"speculative_config": {"model": "x/drafter", "num_speculative_tokens": 3}},
    ),
    (
        "SPC009",
        {"speculative_config": {"method": "eagel3", "num_speculative_tokens": 3}},
        {"speculative_config": {"method": "glm4_moe_mtp", "num_speculative_tokens": 1}},
    ),
    # releases
    ("VER001", {"swap_space": 4.0}, {"swap_space": 4.0, "release": "0.17.0"}),
    (
        "VER001",
        {"disable_log_requests": True, "release": "0.19.0"},
        {"disable_log_requests": True, "release": "0.16.0"},
    ),
    (
        "VER002",
        {"performance_mode": "throughput", "release": "0.16.0"},
        {"performance_mode": "throughput", "release": "0.17.0"},
    ),
    (
        "VER003",
        {"num_scheduler_steps": 8, "release": "0.9.0"},
        {"num_scheduler_steps": 8, "release": "0.6.4"},
    ),
    ("VER004", {"disable_log_requests": True}, {"enable_log_requests": False}),
    ("VER005", {"performance_mode": "fast"}, {"performance_mode": "interactivity"}),
    ("VER006", {"release": "0.6.1"}, {"release": "0.6.3"}),
    (
        "VER006",
        {"model": "Qwen/Qwen3.6-35B-A3B-FP8", "release": "0.25.0"},
        {"model": "Qwen/Qwen3.6-35B-A3B-FP8", "release": "0.23.0"},
    ),
    ("VER007", {"release": "0.7.3"}, {"release": "0.8.0"}),
    (
        "VER008",
        {"model": GPT_OSS, "release": "0.10.0"},
        {"model": GPT_OSS, "release": "0.10.1"},
    ),
    (
        "VER008",
        {"model": "Qwen/Qwen3-8B", "release": "0.8.3"},
        {"model": "Qwen/Qwen3-8B", "release": "0.8.4"},
    ),
    (
        "VER008",
        {"model": "Qwen/Qwen3.6-27B", "release": "0.16.0"},
        {"model": "Qwen/Qwen3.6-27B", "release": "0.17.0"},
    ),
)
"""Rule, where it fires, where it does not."""
