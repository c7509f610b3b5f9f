"""Readers from Hugging Face config.json to the parts of a model."""
