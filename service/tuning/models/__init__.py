"""Models: Hugging Face config to layer groups, quantisation, weight inventory, catalogue."""
