"""The names and shapes of a network's parameters, read off its spec without building it.

`transformer.build` is the definition; this says the same without PyTorch, so that a file can be opened, checked and run by
the native engine alone.
"""

import math
from collections.abc import Iterator

from regard.model.spec import HeadSpec, Spec, StackSpec

Named = Iterator[tuple[str, tuple[int, ...]]]


def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Every parameter under each of its names: tied ones are listed twice."""
    if spec.recurrent is not None:  # which the native engine does not know
        from regard.model.transformer import blueprint

        return {name: tuple(p.shape) for name, p in blueprint(spec).named_parameters(remove_duplicate=False)}
    return dict(_network(spec))


def count_parameters(spec: Spec) -> int:
    """Of tied ones, one counts."""
    tied = {name for group in spec.tied for name in group[1:]}
    return sum(math.prod(shape) for name, shape in shapes(spec).items() if name not in tied)


def _network(spec: Spec) -> Named:
    apart = spec.encoder is not None and spec.decoder is not None
    for side, stack in spec.stacks.items():
        here = f"{side}." if apart else ""
        yield from _embed(f"{here}embed", spec.d, stack)
        for i in range(stack.n_layers):
            yield from _block(f"{side}.{i}", spec.d, stack, cross=apart and side == "decoder")
        if stack.final_norm:
            yield from _norm(f"{here}final_norm", spec.d, stack.norm)
    yield from _head(spec.d, spec.head)
    if spec.head.kind in ("lm", "mlm"):
        yield from _linear("unembed", spec.d, spec.n_vocab, spec.head.bias)


def _embed(path: str, d: int, stack: StackSpec) -> Named:
    yield f"{path}.tokens.weight", (stack.n_vocab, d)
    if stack.positions.kind == "learned":
        yield f"{path}.positions.weight", (stack.positions.limit + stack.positions.offset, d)
    if stack.n_types:
        yield f"{path}.types.weight", (stack.n_types, d)
    if stack.embed_norm:
        yield from _norm(f"{path}.norm", d, stack.norm)


def _block(path: str, d: int, stack: StackSpec, cross: bool) -> Named:
    a, m = stack.attention, stack.mlp
    for part in ("attention", "cross") if cross else ("attention",):
        yield from _linear(f"{path}.{part}.W_q", d, a.heads * a.d_k, a.bias)
        yield from _linear(f"{path}.{part}.W_k", d, a.kv_heads * a.d_k, a.bias)
        yield from _linear(f"{path}.{part}.W_v", d, a.kv_heads * a.d_k, a.bias)
        yield from _linear(f"{path}.{part}.W_o", a.heads * a.d_k, d, a.out_bias)
    for part in ("gate", "up") if m.gated else ("up",):
        yield from _linear(f"{path}.mlp.{part}", d, m.d_ff, m.bias)
    yield from _linear(f"{path}.mlp.down", m.d_ff, d, m.bias)
    for norm in ("norm_1", "norm_cross", "norm_2") if cross else ("norm_1", "norm_2"):
        yield from _norm(f"{path}.{norm}", d, stack.norm)


def _head(d: int, head: HeadSpec) -> Named:
    if head.pooler:
        yield from _linear("pooler.dense", d, d)
    if head.kind == "mlm" or head.dense:
        yield from _linear("head.dense", d, d)
    if head.kind == "mlm":
        yield from _norm("head.norm", d, "layer")
    if head.kind in ("classify", "tag"):
        yield from _linear("head.out", d, len(head.labels))


def _linear(path: str, fan_in: int, fan_out: int, bias: bool = True) -> Named:
    yield f"{path}.weight", (fan_out, fan_in)
    if bias:
        yield f"{path}.bias", (fan_out,)


def _norm(path: str, d: int, kind: str) -> Named:
    yield f"{path}.weight", (d,)
    if kind == "layer":
        yield f"{path}.bias", (d,)
