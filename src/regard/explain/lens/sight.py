"""As far as a token can see: what a run must be made of again to answer at it.

In a causal stack no token looks ahead, so a question about one token is answered by the text up to it. Elsewhere, and where
an edit counts on all tokens being there, it takes the whole text.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from regard.explain.graph import SOURCE
from regard.explain.trace import Run, Trace


@dataclass(frozen=True)
class Sight:
    trace: Trace
    queries: str = SOURCE  # whose tokens are counted: the source's or the target's
    tokens: int | None = None  # how many of them; None is all

    def run(self) -> Run:
        run = self.trace.run
        if self.queries == SOURCE:
            return replace(run, ids=run.ids[: self.tokens])
        return replace(run, target_ids=(run.target_ids or [])[: self.tokens])

    def of(self, node: str) -> Tensor:
        """States of the trace, (1, tokens, d); of the other text all."""
        own = self.trace.graph[node].axes[0] == self.queries
        return self.trace[node][None, : self.tokens if own else None]


def sight(trace: Trace, token: int) -> Sight:
    """Of a token that answers."""
    looking = [site for site in trace.graph.sites if site.kind != "cross"]
    if not looking:
        return Sight(trace)
    return Sight(trace, looking[-1].queries, token + 1 if looking[-1].kind == "causal" else None)
