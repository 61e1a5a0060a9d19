"""One token's numbers inside the blocks, without making those of the others.

In: a `Trace` and a token. Out: its row of what the blocks that lead to the answer showed. A lens that asks every block
about one token needs of the other tokens only keys and values: what came into each block is on the trace's spine, one query
asks, and one row goes through W_o and the MLP. At 500 tokens that is a seventh of running the blocks again.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from torch import Tensor

from regard.explain.held import block_of, inside_of
from regard.explain.lens.sight import Sight, sight
from regard.explain.trace import Enough, Trace


def alone(trace: Trace, token: int) -> Mapping[str, Tensor]:
    """By node, what `trace[node][..., token, :]` holds, from a block's one query on.

    Blocks with an edit in them are left out: there a token's numbers may come from any other's.
    """
    looking = [site for site in trace.graph.sites if site.kind != "cross"]
    sites = [site for site in looking if site.stack == looking[-1].stack]  # the stack that answers
    blocks = [f"{site.stack}.{site.layer}" for site in sites]
    edited = set() if trace.run.edits is None else {block_of(name) for name in trace.run.edits.nodes()}
    if edited.issuperset(blocks) or not all(f"{block}.out" in trace for block in blocks):
        return {}
    trace._check_weights(f"the {sites[0].stack}")
    Q = "Q_rotated" if f"{sites[0].site}.Q_rotated" in trace.graph.nodes else "Q"
    queries = {f"{site.site}.{Q}" for site in sites}
    watcher = Alone(sight(trace, token), token, queries, {block for block in blocks if block not in edited})
    with suppress(Enough):
        watcher.sight.run().forward(watcher)
    return watcher.rows


@dataclass
class Alone:
    """Watches a run in which what goes into each block is known; `left` are the blocks that are still to be run."""

    sight: Sight
    token: int
    queries: set[str]
    left: set[str]
    rows: dict[str, Tensor] = field(default_factory=dict)

    def known(self, place: str) -> Tensor | None:
        out = f"{place}.out"
        on_spine = inside_of(out) is None and out in self.sight.trace
        return self.sight.of(out) if on_spine and place not in self.left else None

    def __call__(self, name: str, x: Tensor) -> Tensor:
        block = block_of(name)
        if name == f"{block}.out":
            self.left.discard(str(block))
            if not self.left:
                raise Enough
            return self.sight.of(name)
        if name in self.queries:
            x = x[:, :, self.token, None]  # (1, h, 1, d_k): the last of the keys it may see, or one that sees all
        elif name == f"{block}.H":
            x = x[:, self.token, None]  # (1, 1, d): what attention found for this token was added to all
        if block is not None and x.shape[-2] == 1:
            self.rows[name] = x[0, ..., 0, :]
        return x
