"""RQ workers on GPU nodes: they start real vLLM and measure it."""
