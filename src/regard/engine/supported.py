"""Which networks the native engine computes: those of whose spec it reads every field, and knows every value.

Whatever it has never heard of, it refuses by name, and PyTorch computes instead. A field added to a spec is unsupported
until it stands here, that is until `plan.py` reads it; one that is left at its default changes nothing.
"""

from collections.abc import Collection, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from regard.engine.native.library import ACTIVATIONS, NORMS, WIDEST_HEAD
from regard.model.spec import (
    AttentionSpec,
    HeadSpec,
    MLPSpec,
    PositionSpec,
    RotaryScalingSpec,
    Spec,
    StackSpec,
)

LONGEST = 1 << 16  # tokens of a table of positions, or of a text that is read whole

# What plan.py reads; behind the bar, what does not change a result: names, training, and what stands around the network.
READ: dict[type, str] = {
    Spec: "d encoder decoder head recurrent tied | family pad_id bos_id eos_ids start_id initializer_std",
    StackSpec: "n_layers n_vocab wiring norm eps attention mlp positions windows embed_scale embed_norm n_types final_norm"
    " | dropout embed_dropout",
    AttentionSpec: "heads kv_heads d_k bias out_bias scaled scaled_by_layer | dropout",
    MLPSpec: "d_ff activation gated bias | dropout",
    PositionSpec: "kind limit offset halves stretch theta scaling",
    RotaryScalingSpec: "kind factor low_freq_factor high_freq_factor original_positions",
    HeadSpec: "kind bias | activation pooler dense labels dropout",  # other heads than lm are computed by PyTorch
}
VALUES: dict[tuple[type, str], Collection[Any]] = {
    (StackSpec, "wiring"): ("pre", "post"),
    (StackSpec, "norm"): [norm for norm in NORMS if norm != "none"],
    (MLPSpec, "activation"): ACTIVATIONS,
    (PositionSpec, "kind"): ("learned", "sinusoidal", "rotary"),
    (RotaryScalingSpec, "kind"): ("linear", "llama3"),
    (HeadSpec, "kind"): ("lm", "mlm", "classify", "tag", "none"),
    (Spec, "recurrent"): (None,),
}


def unsupported(spec: Spec) -> str | None:
    """What of this network the engine does not compute, in a few words; None if it computes all of it."""
    return next(_objections(spec), None)


def _objections(spec: Spec) -> Iterator[str]:
    yield from _unread("", spec)
    if spec.decoder is not None and spec.head.kind != "lm":
        yield f"a decoder with a head of kind {spec.head.kind!r}"
    for name, stack in spec.stacks.items():
        if stack.attention.d_k > WIDEST_HEAD:
            yield f"{name}.attention.d_k = {stack.attention.d_k}, more than {WIDEST_HEAD}"
        table = stack is not spec.decoder or stack.positions.kind != "rotary"
        if table and stack.positions.limit > LONGEST:
            yield f"{name}.positions.limit = {stack.positions.limit}, more than {LONGEST}"


def _unread(path: str, part: Any) -> Iterator[str]:
    """Fields that nobody here reads, unless they have their default, and values that nobody here knows."""
    kind = type(part)
    read = READ.get(kind, "").replace("|", "").split()
    for field in fields(part):
        value, name = getattr(part, field.name), f"{path}{field.name}"
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if (field.name not in read and value != default) or value not in VALUES.get((kind, field.name), (value,)):
            yield name if is_dataclass(value) else f"{name} = {value!r}"
        elif is_dataclass(value):
            yield from _unread(f"{name}.", value)
