"""Engine facts: what each vLLM version knows, its defaults, choices and metric names."""
