"""Accuracy of an engine: `verify` checks the laws on a model, `quantization_cost` measures what quantization costs."""
