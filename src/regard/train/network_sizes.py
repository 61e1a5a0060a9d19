"""The sizes of the network that a run trains, and whether there is enough memory to train it.

From scratch they are as requested. Fine-tuning (`--from`), they are the model's: a setting that contradicts it is refused,
and those that were not given are filled in, so that `run.toml` records what was used.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.errors import ConfigError
from regard.model.shapes import count_parameters
from regard.model.spec import Spec
from regard.store.open_model import Opened, open_files
from regard.store.system_memory import available_memory
from regard.train.optimizer import schedule
from regard.train.parallel import Parallel
from regard.train.settings import FROM_SCRATCH, TrainSettings, flag
from regard.train.task import task_named
from regard.train.task.base import Task

FROM_MODEL = ("family", "layers", "width", "heads", "d_ff", "vocab_size", "block_size")


def effective_settings(settings: TrainSettings, notify: Callable[[str], None]) -> TrainSettings:
    """A new run's settings with the model's sizes filled in; what does not fit is refused before anything is made."""
    kind = task_named(settings.task)
    schedule(settings.schedule, 0, 1)
    if settings.start is not None:
        return with_model_sizes(settings, open_files(settings.start), kind)
    if settings.family is not None and settings.family not in kind.families:
        names = ", ".join(kind.families)
        raise ConfigError(f"--family is {settings.family!r}; for {settings.task} it can be {names}.")
    if settings.family == "gru":
        notify("A gru has one layer and no heads, so --layers and --heads are not used.")
    return settings


def with_model_sizes(settings: TrainSettings, start: Opened, kind: type[Task]) -> TrainSettings:
    sizes = sizes_of(start)
    for name, own in sizes.items():
        asked = getattr(settings, name)
        if asked is not None and {asked} != own:
            has = " and ".join(str(value) for value in sorted(own)) or "none"
            raise ConfigError(
                f"{flag(name)} is {asked!r}, but the model {settings.start} has {has}, which cannot be changed; "
                f"leave out {flag(name)}, or leave out --from to train from scratch."
            )
    if settings.tokenizer not in (None, settings.start):
        raise ConfigError(
            f"--tokenizer is {settings.tokenizer!r}, but the model {settings.start} has its own; leave it out."
        )
    context = min(start.spec.context, start.spec.source_context)
    if settings.block_size is not None and settings.block_size > context:
        raise ConfigError(
            f"--block-size is {settings.block_size}, but the context of the model {settings.start} is {context} tokens."
        )
    usual = kind.defaults.get("block_size", FROM_SCRATCH["block_size"])
    known: dict[str, Any] = {name: next(iter(own)) for name, own in sizes.items() if len(own) == 1}
    return replace(settings, **known, block_size=settings.block_size or min(usual, context))


def sizes_of(model: Opened) -> dict[str, set[Any]]:
    """Setting → the model's values of it: two where encoder and decoder differ."""
    spec, stacks = model.spec, model.spec.stacks.values()
    return {
        "family": {model.config["model_type"]},
        "layers": {stack.n_layers for stack in stacks},
        "width": {spec.d},
        "heads": {stack.attention.heads for stack in stacks},
        "d_ff": {spec.recurrent.hidden} if spec.recurrent else {stack.mlp.d_ff for stack in stacks},
        "vocab_size": {spec.n_vocab, spec.source_vocab},
    }


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_if_too_large(spec: Spec, parallel: Parallel, allocated: bool = False, activations: int = 0) -> None:
    """Refuse a run that needs more memory than is free: weights, gradients and the optimizer's two moments, in float32,
    and the activations stored for the backward pass. `allocated`: the weights are in memory already."""
    n, free = count_parameters(spec), available_memory()
    shares = parallel.world_size if parallel.shard else 1
    needed = (0 if allocated else 4 * n) + activations
    if parallel.device.type == "cpu":  # on a GPU, only the initial weights are in this memory
        needed += 12 * n // shares
    if free is not None and needed > free:
        step = f", {activations / 1e9:,.1f} GB of it for a step" if activations else ""
        advice = "--batch-size, --batch-tokens or --block-size" if activations else "--layers, --width or --vocab-size"
        raise ConfigError(
            f"Training {n:,} parameters takes {needed / 1e9:,.1f} GB of memory{step}, but {free / 1e9:,.1f} GB are "
            f"free; lower {advice}."
        )


def activations_of(spec: Spec, tokens: int, settings: TrainSettings) -> int:
    """The least bytes of activations that a step of so many tokens stores for its backward pass: the inputs of all
    matrices and norms; with activation checkpointing, each block's input and one block's activations."""
    total = 0
    for stack in spec.stacks.values():
        block = 8 * spec.d + 2 * stack.mlp.d_ff
        again = settings.checkpoint_activations
        total += stack.n_layers * spec.d + block if again else stack.n_layers * block
    return total * tokens * (2 if settings.bf16 else 4)
