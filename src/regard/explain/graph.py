"""How the numbers of a run hang together: each seen tensor as a node with what made it and from what.

In: a network and the names it showed. Out: a `Graph` of `Node`s. One function per kind of part says which operations that
part performs, in the words of the lectures; nothing here knows a model by name. `why` has one rule per operation.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from regard.model.heads import Classifier, DenseClassifier, MaskedHead, Pooler
from regard.model.recurrent import Recurrent
from regard.model.spec import StackSpec
from regard.model.transformer import DecoderOnly, EncoderDecoder, EncoderOnly, Network, Side
from regard.nn.attention import Cross, Heads
from regard.nn.block import CrossPostNorm, CrossPreNorm, PostNorm, PreNorm
from regard.nn.embed import Embed
from regard.nn.mlp import MLP, GatedMLP
from regard.nn.norm import LayerNorm
from regard.nn.position import Learned, Rotary

SOURCE, TARGET = "source", "target"  # whose tokens an axis counts


@dataclass(frozen=True)
class Node:
    """op: lookup, sine, add, copy, linear, rotate, dot, scale, mask, softmax, mix, concat, mean, mean_square, variance,
    normalise, affine, activation, gate; in recurrent networks additive, joined, gru.

    axes: "source" and "target" count tokens; others: head, kv_head, feature, channel, neuron, vocabulary, class, one.
    inputs: names of nodes and of weights. facts: what else the rule needs.
    """

    name: str
    op: str
    axes: tuple[str, ...]
    inputs: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Site:
    """A place where attention happens."""

    site: str  # "decoder.0.cross"
    kind: str  # "self" (all see all), "causal" or "cross"
    stack: str
    layer: int
    heads: int
    queries: str  # whose tokens ask
    keys: str  # whose are looked at


@dataclass(frozen=True)
class Stack:
    """What the blocks of a stack have in common."""

    spec: StackSpec
    tokens: str
    rotary: Rotary | None
    causal: bool
    memory: str | None = None  # what its cross attention looks at


class Graph:
    """Nodes by name, in the order of the run."""

    def __init__(self, net: Network, seen: Mapping[str, tuple[int, ...]]) -> None:
        self.net, self.nodes, self.sites = net, dict[str, Node](), list[Site]()
        self._seen = seen
        if isinstance(net, Recurrent):
            self._recurrent(net)
        elif isinstance(net, EncoderDecoder):
            memory = self._side(net.encoder, "encoder", SOURCE, None)
            X = self._side(net.decoder, "decoder", TARGET, memory)
            self._outcome(net, X, TARGET)
        else:
            self._single(net)
        order = {name: i for i, name in enumerate(seen)}
        self.nodes = dict(sorted(self.nodes.items(), key=lambda item: order[item[0]]))

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def _add(self, name: str, op: str, axes: tuple[str, ...], *inputs: str, **facts: Any) -> str:
        """The node if it was seen; what stands in its place otherwise (a run without a mask has no masked scores)."""
        if name not in self._seen:
            return inputs[0]
        self.nodes[name] = Node(name, op, axes, inputs, facts)
        return name

    # the networks

    def _single(self, net: DecoderOnly | EncoderOnly) -> None:
        name = "decoder" if isinstance(net, DecoderOnly) else "encoder"
        stack = Stack(net.stack, SOURCE, net.rotary, causal=name == "decoder")
        X = self._embed("embed", net.embed, SOURCE)
        for i, block in enumerate(getattr(net, name)):
            X = self._block(f"{name}.{i}", block, X, stack)
        if net.final_norm is not None:
            X = self._norm("final_norm", net.final_norm, X, SOURCE)
        self._outcome(net, X, SOURCE)

    def _side(self, side: Side, name: str, tokens: str, memory: str | None) -> str:
        stack = Stack(side.stack, tokens, side.rotary, name == "decoder", memory)
        X = self._embed(f"{name}.embed", side.embed, tokens)
        for i, block in enumerate(side.blocks):
            X = self._block(f"{name}.{i}", block, X, stack)
        if side.final_norm is not None:
            X = self._norm(f"{name}.final_norm", side.final_norm, X, tokens)
        return X

    def _outcome(self, net: DecoderOnly | EncoderOnly | EncoderDecoder, X: str, tokens: str) -> None:
        """From the last states to logits and probabilities, by what head there is."""
        pooler, head = getattr(net, "pooler", None), getattr(net, "head", None)
        classes: tuple[str, ...] = (tokens, "class")
        row: int | None = None
        if isinstance(pooler, Pooler):
            self._linear("pooler.dense", ("feature",), X, "pooler.dense", row=0)
            pooled = self._add("pooler.out", "activation", ("feature",), "pooler.dense", function="tanh")
        if net.spec.head.kind == "classify":  # one vector for the text: the pooled, the first, or with BART the last
            classes = ("class",)
            X, row = (pooled, None) if isinstance(pooler, Pooler) else (X, -1 if isinstance(net, EncoderDecoder) else 0)
        if isinstance(head, MaskedHead):
            self._linear("head.dense", (tokens, "feature"), X, "head.dense")
            act = self._add("head.act", "activation", (tokens, "feature"), "head.dense", function=head.activation)
            X = self._norm("head.norm", head.norm, act, tokens)
        if isinstance(head, DenseClassifier):
            axes = (*classes[:-1], "feature")
            self._linear("head.dense", axes, X, "head.dense", row=row)
            X, row = self._add("head.act", "activation", axes, "head.dense", function="tanh"), None
        if isinstance(head, Classifier | DenseClassifier):
            self._linear("logits", classes, X, "head.out", row=row)
            self._add("probabilities", "softmax", classes, "logits")
        elif net.unembed is not None:
            self._linear("logits", (tokens, "vocabulary"), X, "unembed")
            self._add("probabilities", "softmax", (tokens, "vocabulary"), "logits")

    # the parts

    def _embed(self, place: str, embed: Embed, tokens: str) -> str:
        axes, summands = (tokens, "feature"), [f"{place}.tokens"]
        self._add(f"{place}.tokens", "lookup", axes, f"{place}.tokens.weight", rows="ids", of=tokens, scale=embed.scale)
        if isinstance(embed.positions, Learned):
            offset = embed.positions.offset
            self._add(
                f"{place}.positions", "lookup", axes, f"{place}.positions.weight", rows="positions", offset=offset
            )
            summands.append(f"{place}.positions")
        elif embed.positions is not None:
            self._add(f"{place}.positions", "sine", axes, module=embed.positions)
            summands.append(f"{place}.positions")
        if embed.types is not None:
            self._add(f"{place}.types", "lookup", axes, f"{place}.types.weight", rows="types")
            summands.append(f"{place}.types")
        if embed.norm is None:
            return self._add(f"{place}.out", "add" if len(summands) > 1 else "copy", axes, *summands)
        self._add(f"{place}.sum", "add", axes, *summands)
        return self._add(f"{place}.out", "copy", axes, self._norm(f"{place}.norm", embed.norm, f"{place}.sum", tokens))

    def _norm(self, place: str, norm: nn.Module, X: str, tokens: str) -> str:
        axes, one = (tokens, "feature"), (tokens, "one")
        if isinstance(norm, LayerNorm):
            self._add(f"{place}.mean", "mean", one, X)
            self._add(f"{place}.variance", "variance", one, X, f"{place}.mean")
            inputs: tuple[str, ...] = (X, f"{place}.variance", f"{place}.mean")
        else:
            self._add(f"{place}.mean_square", "mean_square", one, X)
            inputs = (X, f"{place}.mean_square")
        self._add(f"{place}.normalised", "normalise", axes, *inputs, eps=norm.eps)
        bias = [f"{place}.bias"] if getattr(norm, "bias", None) is not None else []
        return self._add(f"{place}.out", "affine", axes, f"{place}.normalised", f"{place}.weight", *bias)

    def _linear(
        self, name: str, axes: tuple[str, ...], X: str, module: str, *, split: int | None = None, row: int | None = None
    ) -> str:
        """X W + b. split: the features are heads of this size side by side. row: only this token's is computed."""
        biased = self.net.get_submodule(module).bias is not None
        inputs = (X, f"{module}.weight", *([f"{module}.bias"] if biased else []))
        return self._add(name, "linear", axes, *inputs, split=split, row=row)

    def _attention(self, place: str, part: Heads, X: str, stack: Stack) -> str:
        name, layer, _ = place.split(".")
        memory, tokens = stack.memory if isinstance(part, Cross) else None, stack.tokens
        keys = SOURCE if memory is not None else tokens
        asks, offers, d_k = ("head", tokens, "channel"), ("kv_head", keys, "channel"), part.d_k
        Q = self._linear(f"{place}.Q", asks, X, f"{place}.W_q", split=d_k)
        K = self._linear(f"{place}.K", offers, memory or X, f"{place}.W_k", split=d_k)
        V = self._linear(f"{place}.V", offers, memory or X, f"{place}.W_v", split=d_k)
        if stack.rotary is not None and memory is None:
            Q = self._add(f"{place}.Q_rotated", "rotate", asks, Q, module=stack.rotary)
            K = self._add(f"{place}.K_rotated", "rotate", offers, K, module=stack.rotary)
        pairs = ("head", tokens, keys)
        self._add(f"{place}.dots", "dot", pairs, Q, K)
        scale = 1 / math.sqrt(d_k) if part.scale is None else part.scale
        S = self._add(f"{place}.scores", "scale", pairs, f"{place}.dots", scale=scale, d_k=d_k)
        S = self._add(f"{place}.masked", "mask", pairs, S, window=stack.spec.window(int(layer)))
        A = self._add(f"{place}.weights", "softmax", pairs, S)
        Z = self._add(f"{place}.Z", "mix", asks, A, V)
        bias = [f"{place}.W_o.bias"] if part.W_o.bias is not None else []
        kind = "cross" if memory is not None else "causal" if stack.causal else "self"
        self.sites.append(Site(place, kind, name, int(layer), part.heads, tokens, keys))
        return self._add(f"{place}.M", "concat", (tokens, "feature"), Z, f"{place}.W_o.weight", *bias)

    def _mlp(self, place: str, mlp: nn.Module, X: str, tokens: str) -> str:
        hidden = (tokens, "neuron")
        self._linear(f"{place}.up", hidden, X, f"{place}.up")
        if isinstance(mlp, GatedMLP):
            self._linear(f"{place}.gate", hidden, X, f"{place}.gate")
            self._add(f"{place}.act", "activation", hidden, f"{place}.gate", function=mlp.activation)
            act = self._add(f"{place}.gated", "gate", hidden, f"{place}.act", f"{place}.up")
        else:
            assert isinstance(mlp, MLP)
            act = self._add(f"{place}.act", "activation", hidden, f"{place}.up", function=mlp.activation)
        return self._linear(f"{place}.out", (tokens, "feature"), act, f"{place}.down")

    def _block(self, place: str, block: Any, X: str, stack: Stack) -> str:
        axes, pre = (stack.tokens, "feature"), isinstance(block, PreNorm | CrossPreNorm)
        assert pre or isinstance(block, PostNorm | CrossPostNorm)

        def normed(name: str, X: str) -> str:
            return self._norm(f"{place}.{name}", block.get_submodule(name), X, stack.tokens)

        def looked(name: str, X: str) -> str:
            return self._attention(f"{place}.{name}", block.get_submodule(name), X, stack)

        M = looked("attention", normed("norm_1", X) if pre else X)
        H = self._add(f"{place}.H", "add", axes, X, M)
        H = H if pre else normed("norm_1", H)
        if stack.memory is not None:
            M = looked("cross", normed("norm_cross", H) if pre else H)
            H = self._add(f"{place}.C", "add", axes, H, M)
            H = H if pre else normed("norm_cross", H)
        changed = self._mlp(f"{place}.mlp", block.mlp, normed("norm_2", H) if pre else H, stack.tokens)
        if pre:
            return self._add(f"{place}.out", "add", axes, H, changed)
        self._add(f"{place}.H_2", "add", axes, H, changed)
        return self._add(f"{place}.out", "copy", axes, normed("norm_2", f"{place}.H_2"))

    def _recurrent(self, net: Recurrent) -> None:
        X = self._embed("encoder.embed", net.encoder.embed, SOURCE)
        H = self._add("encoder.reader.H", "gru", (SOURCE, "feature"), X, module="encoder.reader.gru")
        Y = self._embed("decoder.embed", net.decoder.embed, TARGET)
        at, looks = "decoder.cross", ("head", TARGET, SOURCE)
        self._add(f"{at}.scores", "additive", looks, "decoder.states", H)
        self._add(f"{at}.weights", "softmax", looks, f"{at}.scores")
        self._add(f"{at}.Z", "mix", ("head", TARGET, "channel"), f"{at}.weights", H)
        self._add("decoder.states", "gru", (TARGET, "feature"), Y, f"{at}.Z", H, module="decoder.cell")
        inputs = ("decoder.states", f"{at}.Z", Y, "decoder.out.weight", "decoder.out.bias")
        self._add("decoder.dense", "joined", (TARGET, "feature"), *inputs)
        self._add("decoder.out", "activation", (TARGET, "feature"), "decoder.dense", function="tanh")
        self._linear("logits", (TARGET, "vocabulary"), "decoder.out", "unembed")
        self._add("probabilities", "softmax", (TARGET, "vocabulary"), "logits")
        self.sites.append(Site(at, "cross", "decoder", 0, 1, TARGET, SOURCE))


def weight(net: nn.Module, name: str) -> Tensor | None:
    """A parameter by its name, in the lectures' orientation: a linear map's is (in, out), an embedding's (id, feature)."""
    path, _, leaf = name.rpartition(".")
    try:
        module = net.get_submodule(path)
    except AttributeError:
        return None
    value = getattr(module, leaf, None)
    if not isinstance(value, nn.Parameter):
        return None
    return value.detach().T if isinstance(module, nn.Linear) and leaf == "weight" else value.detach()
