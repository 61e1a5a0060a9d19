"""A run with everything it passed through: `model.trace(text)`.

In: a network and ids. Out: a `Trace`, which has every tensor that was seen, by name, without the batch axis.
"""

import difflib
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import NotFound
from regard.model.transformer import EncoderDecoder, Network
from regard.nn.see import watching
from regard.text.tokenizer import Tokenizer


class Trace:
    def __init__(self, seen: dict[str, Tensor], tokens: list[str], target_tokens: list[str] | None = None) -> None:
        self._seen, self.tokens, self.target_tokens = seen, tokens, target_tokens

    def nodes(self) -> list[str]:
        """Names in the order in which they were computed."""
        return list(self._seen)

    def __contains__(self, name: object) -> bool:
        return name in self._seen

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._seen:
            near = difflib.get_close_matches(name, self._seen, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "trace.nodes() lists them."
            raise NotFound(f"This run has no node {name!r}; {hint}")
        return self._seen[name]

    def __repr__(self) -> str:
        return f"<regard.Trace of {len(self.tokens)} tokens, {len(self._seen)} nodes>"


@torch.no_grad()
def trace(
    net: Network, ids: Sequence[int], tokenizer: Tokenizer | None, target_ids: Sequence[int] | None = None
) -> Trace:
    """Run once, watched: the readable definition computes, and every number it makes is kept."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x[0]
        return x

    device = next(net.parameters()).device
    source = torch.tensor([list(ids)], device=device)
    with watching(keep):
        if isinstance(net, EncoderDecoder):
            net(source, torch.tensor([list(target_ids or [])], device=device))
        else:
            net(source)

    def pieces(row: Sequence[int]) -> list[str]:
        return tokenizer.pieces(list(row)) if tokenizer else [str(i) for i in row]

    return Trace(seen, pieces(ids), pieces(target_ids) if target_ids is not None else None)
