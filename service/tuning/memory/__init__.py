"""Memory: weights, activation, overheads, and the KV cache plan of each vLLM version."""
