"""`Spec`: the hyperparameters of a network, in the lectures' terms. No weights, no framework, no file format.

A family turns a config.json into a `Spec`; `registry.network` turns a `Spec` into a network; the engine, the map on the
page and `regard inspect` read the same `Spec`.
"""

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.errors import ConfigError
from regard.model.config import LARGEST_SIZE
from regard.nn.position import RotaryScaling


@dataclass(frozen=True)
class AttentionSpec:
    heads: int
    kv_heads: int
    d_k: int
    bias: bool = True  # of W_q, W_k, W_v
    out_bias: bool = True  # of W_o
    scaled: bool = True  # scores divided by √d_k
    scaled_by_layer: bool = False  # … and by the layer's number, counted from 1
    dropout: float = 0.0


@dataclass(frozen=True)
class MLPSpec:
    d_ff: int
    activation: str
    gated: bool = False
    bias: bool = True
    dropout: float = 0.0


@dataclass(frozen=True)
class PositionSpec:
    kind: Literal["learned", "sinusoidal", "rotary"]
    limit: int  # the context length: how many positions exist, or were trained for
    offset: int = 0  # learned, sinusoidal: the first token's position
    halves: bool = False  # sinusoidal: all sines, then all cosines
    stretch: bool = False  # sinusoidal: frequencies over d/2 - 1 steps
    theta: float = 10000.0  # rotary
    dims: int | None = None  # rotary: how many dimensions of a head are rotated, if not all
    scaling: RotaryScaling | None = None  # rotary


@dataclass(frozen=True)
class StackSpec:
    """Embeddings and a stack of identical blocks: an encoder or a decoder."""

    n_layers: int
    n_vocab: int
    wiring: Literal["pre", "post"]
    norm: Literal["layer", "rms"]
    eps: float
    attention: AttentionSpec
    mlp: MLPSpec
    positions: PositionSpec
    windows: tuple[int | None, ...] = ()  # per layer; empty: no layer has a sliding window
    embed_scale: float = 1.0
    embed_norm: bool = False
    n_types: int = 0
    final_norm: bool = False
    dropout: float = 0.0
    embed_dropout: float = 0.0

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None


@dataclass(frozen=True)
class RecurrentSpec:
    """The encoder-decoder of 2015: GRUs and additive attention instead of stacks of blocks."""

    n_vocab: int
    hidden: int
    limit: int
    dropout: float = 0.0


@dataclass(frozen=True)
class HeadSpec:
    """The task head on the last hidden states.

    lm: next-token logits. mlm: transform, then logits at every position. classify: one vector → class logits.
    tag: class logits per token. none: the states themselves.
    """

    kind: Literal["lm", "mlm", "classify", "tag", "none"]
    bias: bool = False  # lm, mlm: of the unembedding
    activation: str = "gelu"  # mlm: of the transform
    pooler: bool = False  # encoder: tanh(W x_first + b), a vector for the whole text
    dense: bool = False  # classify: tanh(W x + b) of its own before the classes
    labels: tuple[str, ...] = ()
    dropout: float = 0.0


@dataclass(frozen=True)
class Spec:
    family: str
    d: int
    encoder: StackSpec | None
    decoder: StackSpec | None
    head: HeadSpec
    recurrent: RecurrentSpec | None = None  # instead of an encoder and a decoder
    tied: tuple[tuple[str, ...], ...] = ()  # parameters that are one and the same; the first is the one in the file
    pad_id: int | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    start_id: int | None = None  # encoder-decoder: the target's first token
    own: tuple[tuple[str, Any], ...] = ()  # settings that only the family's own `network` reads
    initializer_std: float = field(default=0.02, compare=False)

    @property
    def kind(self) -> Literal["encoder", "decoder", "encoder-decoder"]:
        if self.recurrent or (self.encoder and self.decoder):
            return "encoder-decoder"
        return "encoder" if self.encoder else "decoder"

    @property
    def stacks(self) -> dict[str, StackSpec]:
        return {name: s for name, s in (("encoder", self.encoder), ("decoder", self.decoder)) if s is not None}

    @property
    def n_vocab(self) -> int:
        """The vocabulary of the generated tokens."""
        return (self.recurrent or self.decoder or self.stacks["encoder"]).n_vocab

    @property
    def source_vocab(self) -> int:
        """The vocabulary of the input tokens."""
        return (self.recurrent or self.encoder or self.stacks["decoder"]).n_vocab

    @property
    def context(self) -> int:
        """The context length of generation (of a decoder, prompt included), in tokens."""
        return self.recurrent.limit if self.recurrent else (self.decoder or self.stacks["encoder"]).positions.limit

    @property
    def source_context(self) -> int:
        """The context length of the input, in tokens."""
        return self.recurrent.limit if self.recurrent else (self.encoder or self.stacks["decoder"]).positions.limit

    @property
    def learns_positions(self) -> bool:
        """Whether positional embeddings are learned, so that none exist beyond the context length."""
        return any(stack.positions.kind == "learned" for stack in self.stacks.values())

    def with_head(self, head: HeadSpec) -> "Spec":
        return replace(self, head=head)

    def check(self) -> "Spec":
        """The spec itself; a ConfigError if it cannot be built."""
        refuse_unknown_choices("", self)
        for name, stack in self.stacks.items():
            a = stack.attention
            if a.heads % a.kv_heads:
                raise ConfigError(
                    f"The {name} has {a.heads} query heads, which do not divide into {a.kv_heads} key/value heads."
                )
            rotated = stack.positions.dims or a.d_k
            if stack.positions.kind == "rotary" and (rotated % 2 or rotated > a.d_k):
                raise ConfigError(
                    f"Rotary positions rotate pairs of numbers, but the {name}'s heads have d_k = {rotated}."
                )
            if a.heads * a.d_k > LARGEST_SIZE:
                raise ConfigError(f"The {name}'s {a.heads:,} heads of {a.d_k:,} numbers are more than any model has.")
        smaller = min(self.n_vocab, self.source_vocab)
        for name, id, n_vocab in (
            ("pad_token_id", self.pad_id, smaller),
            ("decoder_start_token_id", self.start_id, self.n_vocab),
        ):
            if id is not None and id >= n_vocab:
                raise ConfigError(f"{name} is {id}, but the vocabulary ends at {n_vocab - 1}.")
        return self


def refuse_unknown_choices(path: str, part: Any) -> None:
    """Check every `Literal` field of a spec: an unknown value is a ConfigError."""
    hints = get_type_hints(type(part))
    for one in fields(part):
        value, hint = getattr(part, one.name), hints[one.name]
        if get_origin(hint) is Literal and value not in get_args(hint):
            allowed = ", ".join(map(repr, get_args(hint)))
            raise ConfigError(f"The spec's {path}{one.name} is {value!r}; it can be {allowed}.")
        if is_dataclass(value):
            refuse_unknown_choices(f"{path}{one.name}.", value)


def head_size(d: int, heads: int, d_k: int | None = None) -> int:
    """d_k, by default d / heads, which must divide evenly."""
    if d_k is None and d % heads:
        raise ConfigError(f"A width of {d} cannot be divided among {heads} heads.")
    return d_k or d // heads
