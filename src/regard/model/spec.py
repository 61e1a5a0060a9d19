"""What a network is, in the lectures' terms, and nothing else: no weights, no framework, no file format.

A family turns a config.json into a `Spec`; `transformer.build` turns a `Spec` into a network; the engine, the map on the
page and `regard inspect` read the same `Spec`.
"""

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.errors import ConfigError
from regard.model.config import LARGEST_SIZE


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
class RotaryScalingSpec:
    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True)
class PositionSpec:
    kind: Literal["learned", "sinusoidal", "rotary"]
    limit: int  # how many positions there are, or were trained for
    offset: int = 0  # learned, sinusoidal: the first token's position
    halves: bool = False  # sinusoidal: all sines, then all cosines
    stretch: bool = False  # sinusoidal: frequencies over d/2 - 1 steps
    theta: float = 10000.0  # rotary
    scaling: RotaryScalingSpec | None = None  # rotary


@dataclass(frozen=True)
class StackSpec:
    """Embeddings and a column of identical blocks."""

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
    """What becomes of the last states.

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
        """Of what is generated."""
        return (self.recurrent or self.decoder or self.stacks["encoder"]).n_vocab

    @property
    def source_vocab(self) -> int:
        """Of what is read."""
        return (self.recurrent or self.encoder or self.stacks["decoder"]).n_vocab

    @property
    def context(self) -> int:
        """How many tokens fit into what is generated (and, for a decoder, its prompt)."""
        return self.recurrent.limit if self.recurrent else (self.decoder or self.stacks["encoder"]).positions.limit

    @property
    def source_context(self) -> int:
        """How many tokens fit into what is read."""
        return self.recurrent.limit if self.recurrent else (self.encoder or self.stacks["decoder"]).positions.limit

    @property
    def learns_positions(self) -> bool:
        """Whether there is a row per position, and none beyond."""
        return any(stack.positions.kind == "learned" for stack in self.stacks.values())

    def with_head(self, head: HeadSpec) -> "Spec":
        return replace(self, head=head)

    def check(self) -> "Spec":
        """Refuse what cannot be built, in words."""
        refuse_unknown_choices("", self)
        for name, stack in self.stacks.items():
            a = stack.attention
            if a.heads % a.kv_heads:
                raise ConfigError(
                    f"The {name} has {a.heads} query heads, which do not divide into {a.kv_heads} key/value heads."
                )
            if stack.positions.kind == "rotary" and a.d_k % 2:
                raise ConfigError(f"Rotary positions turn pairs of numbers, but the {name}'s heads have d_k = {a.d_k}.")
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
    """A field that may be one of a few words must be one of them: nothing may be built for a word that nobody knows."""
    hints = get_type_hints(type(part))
    for one in fields(part):
        value, hint = getattr(part, one.name), hints[one.name]
        if get_origin(hint) is Literal and value not in get_args(hint):
            words = ", ".join(map(repr, get_args(hint)))
            raise ConfigError(f"The spec's {path}{one.name} is {value!r}; it can be {words}.")
        if is_dataclass(value):
            refuse_unknown_choices(f"{path}{one.name}.", value)


def head_size(d: int, heads: int, d_k: int | None = None) -> int:
    """d_k, unless the heads do not divide d."""
    if d_k is None and d % heads:
        raise ConfigError(f"A width of {d} cannot be divided among {heads} heads.")
    return d_k or d // heads
