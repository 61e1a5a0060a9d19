"""What would the model say if it stopped here? The last norm and the head, applied to every layer's states."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import TaskError
from regard.explain.held import is_block
from regard.explain.outcome import Guess, answer_row, likeliest
from regard.explain.trace import Trace
from regard.model.recurrent import Recurrent
from regard.model.transformer import EncoderDecoder


@dataclass(frozen=True)
class Row:
    node: str
    top: list[Guess]


@torch.no_grad()
def logit_lens(trace: Trace, token: int = -1, most: int = 5) -> list[Row]:
    """Guesses after the embeddings and after each block (nostalgebraist 2020). The last row is what the model says."""
    if isinstance(trace.net, Recurrent):
        raise TaskError("The logit lens reads a residual stream between blocks, and a recurrent network has none.")
    row = answer_row(trace, token)
    stack = "encoder" if trace.net.spec.kind == "encoder" else "decoder"
    embed = f"{stack}.embed.out" if isinstance(trace.net, EncoderDecoder) else "embed.out"
    blocks = [n for n in trace.graph.nodes if n.startswith(f"{stack}.") and is_block(n.removesuffix(".out"))]
    nodes = list(trace.graph.nodes)
    changed = [name for name in nodes[nodes.index(blocks[-1]) + 1 :] if name in trace.edited]
    if changed:
        raise TaskError(
            f"An edit changed the way from the states to the answer ({changed[0]}). The logit lens takes that way as the "
            "model has it, so it would not say what this run says."
        )
    rows = []
    for node in (embed, *blocks):
        X = trace[node][row[0], None] if row else trace[node]  # the states that the answer is read from
        rows.append(Row(node, likeliest(trace, said(trace, X[None]).flatten(), most)))
    return rows


def said(trace: Trace, X: Tensor) -> Tensor:
    """States (1, N, d) of any depth → the logits that the end of the network makes of them."""
    net = trace.net
    assert not isinstance(net, Recurrent)
    norm = net.decoder.final_norm if isinstance(net, EncoderDecoder) else net.final_norm
    X = X if norm is None else norm(X)
    if isinstance(net, EncoderDecoder) and net.spec.head.kind == "classify":
        X = X[:, -1]  # BART's answer stands at its last token
    elif net.spec.head.kind == "classify":
        pooler = getattr(net, "pooler", None)
        X = X[:, 0] if pooler is None else pooler(X)
    head = getattr(net, "head", None)
    X = X if head is None else head(X)
    logits: Tensor = X if net.unembed is None else net.unembed(X)
    return logits
