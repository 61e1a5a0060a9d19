"""The part of a text that a run needs for the answer at one token.

In a causal stack a token does not attend to later ones, so the tokens up to it are enough. Otherwise, and where an edit
needs all tokens, it is the whole text.
"""

from dataclasses import dataclass, replace

from regard.explain.trace import Array, Run, Trace
from regard.model.graph import SOURCE


@dataclass(frozen=True)
class CausalPrefix:
    trace: Trace
    queries: str = SOURCE  # which text is cut: the source or the target
    tokens: int | None = None  # its length; None: whole

    def run(self) -> Run:
        run = self.trace.run
        if self.queries == SOURCE:
            return replace(run, ids=run.ids[: self.tokens])
        return replace(run, target_ids=(run.target_ids or [])[: self.tokens])

    def of(self, node: str) -> Array:
        """A node's array in the trace, (tokens, d), cut if it has rows of that text."""
        own = self.trace.graph[node].axes[0] == self.queries
        return self.trace[node][: self.tokens if own else None]


def prefix_of(trace: Trace, token: int) -> CausalPrefix:
    """What is needed for the answer at a token."""
    self_attention = [site for site in trace.graph.sites if site.kind != "cross"]
    if not self_attention:
        return CausalPrefix(trace)
    last = self_attention[-1]
    return CausalPrefix(trace, last.queries, token + 1 if last.kind == "causal" else None)
