"""A GGUF file as `transformers` understands it.

Its own converter reads the names, the order of rows and the numbers; only the last step, putting them into a model, is
done here, because `from_pretrained` asks for one more package to do it.
"""

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint


def read_by_transformers(path: Path, config: hf.PretrainedConfig | None = None) -> Any:
    """The causal language model in the file; `config` spares transformers the reading of its metadata."""
    hf.logging.disable_progress_bar()
    config = config or hf.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = hf.AutoModelForCausalLM.from_config(config)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(missing) <= tied, missing
    assert not unexpected, unexpected
    model.tie_weights()
    return model.to(torch.float32).eval()
