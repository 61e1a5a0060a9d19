"""Networks whose weights were set by hand, so that what they do is known before they run.

Each is a `DecoderOnly`, whose parts the tests reach by name, so it is `Any` to a type checker.
"""

from typing import Any

import torch
from torch import Tensor

from regard.engine.pack_network import weights_version
from regard.explain.trace import Trace, trace
from regard.model.build import arrays_of, build
from regard.model.registry import network
from regard.model.spec import AttentionSpec, HeadSpec, MLPSpec, PositionSpec, Spec, StackSpec
from regard.model.transformer import DecoderOnly
from regard.nn.part import with_arrays

SHARP = 40.0  # scores far enough apart that a softmax takes the largest


def silent(
    d: int, n_vocab: int, *, layers: int = 1, heads: int = 1, d_k: int | None = None, final_norm: bool = False
) -> Any:
    """A decoder whose every weight is zero: its heads look at all they may see alike, and write nothing."""
    attention = AttentionSpec(heads, heads, d_k or d // heads, bias=False, out_bias=False)
    mlp, positions = MLPSpec(4, "relu", bias=False), PositionSpec("learned", 16)
    stack = StackSpec(layers, n_vocab, "pre", "layer", 1e-12, attention, mlp, positions, final_norm=final_norm)
    net = build(Spec("gpt2", d, None, stack, HeadSpec("lm")))
    assert isinstance(net, DecoderOnly)
    with torch.no_grad():
        for path, p in net.named_parameters():
            p.fill_(1.0 if "norm" in path and path.endswith("weight") else 0.0)
    return net.eval()


def put(weight: Tensor, value: Tensor) -> None:
    """Set a parameter; a matrix is given as the lectures write it, (in, out)."""
    with torch.no_grad():
        weight.copy_(value)


def echo() -> Any:
    """d = 2, ids 0 and 1 are the unit vectors, and so are the answers. One head looks everywhere alike and copies.

    The norm of (1, 0) is (1, -1), so after a text of zeros the logits are (1, 0) + (1, -1) = (2, -1).
    """
    net = silent(2, 2)
    put(net.embed.tokens.weight, torch.eye(2))
    put(net.unembed.weight, torch.eye(2))
    put(net.decoder[0].attention.W_v.weight, torch.eye(2))
    put(net.decoder[0].attention.W_o.weight, torch.eye(2))
    return net


def previous_and_uniform() -> Any:
    """Two heads over one-hot positions: head 0 looks at the token before, head 1 at all alike."""
    tokens, places = 5, 16
    net = silent(tokens + places, tokens, heads=2, d_k=places)
    see_places(net, tokens)
    put(net.decoder[0].attention.W_q.weight[:places], SHARP * one_back(tokens, places).T)
    put(net.decoder[0].attention.W_k.weight[:places], place_of(tokens, places).T)
    return net


def induction_pair() -> Any:
    """Layer 0 writes beside each token which one was before it; layer 1 looks for itself there and copies what it finds."""
    tokens, places = 6, 16
    d = tokens + places + tokens  # who am I · where am I · who was before me
    net = silent(d, tokens, layers=2, d_k=places)
    see_places(net, tokens)
    first, second = net.decoder[0].attention, net.decoder[1].attention
    me, before = torch.zeros(d, places), torch.zeros(d, places)
    me[:tokens, :tokens] = before[tokens + places :, :tokens] = torch.eye(tokens)
    put(first.W_q.weight, SHARP * torch.cat([one_back(tokens, places), torch.zeros(tokens, places)]).T)
    put(first.W_k.weight, torch.cat([place_of(tokens, places), torch.zeros(tokens, places)]).T)
    put(first.W_v.weight, me.T)
    put(first.W_o.weight, before)  # (out, in): d_k → "who was before me"
    put(second.W_q.weight, SHARP * me.T)
    put(second.W_k.weight, before.T)
    put(second.W_v.weight, me.T)
    put(second.W_o.weight, 4 * me)
    put(net.unembed.weight, torch.eye(d)[:tokens])
    return net


def see_places(net: Any, tokens: int) -> None:
    d = net.spec.d
    put(net.embed.tokens.weight, torch.eye(d)[:tokens])
    put(net.embed.positions.weight, torch.eye(d)[tokens : tokens + 16])


def place_of(tokens: int, places: int) -> Tensor:
    return torch.cat([torch.zeros(tokens, places), torch.eye(places)])


def one_back(tokens: int, places: int) -> Tensor:
    return torch.cat([torch.zeros(tokens, places), torch.eye(places).roll(-1, 1)])


def look(net: Any, ids: list[int]) -> Trace:
    return trace(with_arrays(network(net.spec), arrays_of(net)), ids, None, version=lambda: weights_version(net))
