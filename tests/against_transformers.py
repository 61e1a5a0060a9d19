"""A config.json held against `transformers`: a random model made from it there opens here as the same, or not at all."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import save_file

import regard
import tiny
from regard.errors import RegardError

Json = dict[str, Any]


def judged(model_class: type[hf.PreTrainedModel], config: Json, directory: Path) -> str:
    """ "same", "refused: …", "not there" (transformers cannot use it either), or what is wrong."""
    theirs = made(model_class, config, directory)
    if theirs is None:
        return "not there"
    expected = logits(theirs, config)
    try:
        model = regard.load(directory, engine="torch")
        with torch.no_grad():
            ours = model(*inputs(model_class, config).values())
    except RegardError as refusal:
        return f"refused: {refusal}"
    if ours.shape != expected.shape:
        return f"{tuple(ours.shape)}, but {tuple(expected.shape)} there"
    off = float((ours - expected).abs().max() / expected.abs().max().clamp_min(1))
    return "same" if off <= 1e-4 else f"differs by {off:.2g}"


def made(model_class: type[hf.PreTrainedModel], config: Json, directory: Path) -> hf.PreTrainedModel | None:
    """Their model of this configuration, its weights saved beside the very JSON."""
    hf.logging.set_verbosity(50)
    try:
        model = tiny.randomised(lambda: model_class(model_class.config_class(**json.loads(json.dumps(config)))))
        logits(model, config)
    except Exception:  # whatever a configuration that they cannot use leads to
        return None
    first = dict[int, str]()  # of tensors that are one and the same
    for path, tensor in model.state_dict().items():
        first.setdefault(tensor.data_ptr(), path)
    kept = {path: tensor.contiguous() for path, tensor in model.state_dict().items() if path in first.values()}
    save_file(kept, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config))
    return model


def inputs(model_class: type[hf.PreTrainedModel], config: Json) -> dict[str, torch.Tensor]:
    """Ordinary ids, and the text's end where BART's classifier looks for it."""
    row = torch.randint(6, 40, (1, 11), generator=torch.Generator().manual_seed(0))
    eos = config.get("eos_token_id", 2)
    row[0, 7] = eos if isinstance(eos, int) else 2
    if model_class.__name__.endswith(("ForConditionalGeneration", "MTModel")):
        return {"input_ids": row, "decoder_input_ids": row[:, :6]}
    return {"input_ids": row}


@torch.no_grad()
def logits(model: hf.PreTrainedModel, config: Json) -> torch.Tensor:
    out = model(**inputs(type(model), config), return_dict=True)
    return out.logits if "logits" in out else out.last_hidden_state
