"""One token's rows inside all blocks, without computing those of the other tokens.

In: a `Trace` and a token. Out: its row of every node inside the blocks of the last stack. A lens that needs one token from
every block needs only keys and values of the others: the input of each block is stored in the trace, there is one query,
and one row goes through W_o and the MLP. At 500 tokens this takes a seventh of the time of replaying the blocks.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from regard.explain.activation_cache import block_of, inside_of
from regard.explain.lens.causal_prefix import CausalPrefix, prefix_of
from regard.explain.trace import Array, StopReplay, Trace


def rows_of_token(trace: Trace, token: int) -> Mapping[str, Array]:
    """Node → `trace[node][..., token, :]`, for the nodes from each block's query on.

    Blocks with an edit are left out: there a token's row may depend on any other.
    """
    self_attention = [site for site in trace.graph.sites if site.kind != "cross"]
    sites = [site for site in self_attention if site.stack == self_attention[-1].stack]  # of the last stack
    blocks = [f"{site.stack}.{site.layer}" for site in sites]
    edited = set() if trace.run.edits is None else {block_of(name) for name in trace.run.edits.nodes()}
    if edited.issuperset(blocks) or not all(f"{block}.out" in trace for block in blocks):
        return {}
    trace._check_weights(f"the {sites[0].stack}")
    dots = [node for node in trace.graph if node.op == "dot" and block_of(node.name) in blocks]
    queries = {node.inputs[0] for node in dots if node.axes[1] == node.axes[2]}
    after = {name for query in queries for name in trace.graph.following({query}) if block_of(name) == block_of(query)}
    observer = SingleToken(
        prefix_of(trace, token), token, queries, after, {block for block in blocks if block not in edited}
    )
    with suppress(StopReplay):
        observer.prefix.run().forward(observer)
    return observer.rows


@dataclass
class SingleToken:
    """Observer of a run in which the output of each block is known; `left` are the blocks still to be run inside."""

    prefix: CausalPrefix
    token: int
    queries: set[str]
    after: set[str]  # nodes computed from them
    left: set[str]
    rows: dict[str, Array] = field(default_factory=dict)

    def known(self, place: str) -> Array | None:
        out = f"{place}.out"
        outside = inside_of(out) is None and out in self.prefix.trace
        return self.prefix.of(out) if outside and place not in self.left else None

    def __call__(self, name: str, x: Array) -> Array:
        block = block_of(name)
        if name == f"{block}.out":
            self.left.discard(str(block))
            if not self.left:
                raise StopReplay
            return self.prefix.of(name)
        if name in self.queries:
            x = x[
                :, self.token, None
            ]  # (h, 1, d_k): one query, at the end of its causal prefix or without a causal mask
        elif name in self.after and x.shape[-2] > 1:
            x = x[..., self.token, None, :]  # (1, d): the sum of one row and the whole stream
        if block is not None and x.shape[-2] == 1:
            self.rows[name] = x[..., 0, :]
        return x
