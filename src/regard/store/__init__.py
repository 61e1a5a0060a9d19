"""Checkpoints: files (safetensors, GGUF) ⇄ named tensors."""
