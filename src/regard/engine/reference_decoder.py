"""Prefill and decode steps of the reference network: new ids in, logits of the newest position out, with a KV cache.

`ReferenceDecoder` continues prompts, `ReferenceTranslator` generates a target from an encoder's states; both are a
`Decoder`. The network is the reference on numpy arrays (model/reference.py) or, where PyTorch was requested, the
PyTorch module: the code is the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.top_k import Floats
from regard.model.reference import Network, Seq2Seq
from regard.model.transformer import DecoderOnly
from regard.nn.operation import library_of, to_library_of

Ids = NDArray[np.int64]
Real = NDArray[np.bool_]


def pad(rows: Sequence[Sequence[int]], fill: int, *, left: bool) -> tuple[Ids, Real | None]:
    """Pad rows of different lengths: ids (B, N), and a mask that is False on padding; None if there is no padding."""
    N = max(map(len, rows))
    ids, real = np.full((len(rows), N), fill, np.int64), np.zeros((len(rows), N), bool)
    for i, row in enumerate(rows):
        place = slice(N - len(row), N) if left else slice(0, len(row))
        ids[i, place], real[i, place] = row, True
    return ids, None if real.all() else real


def as_network_arrays(net: Network, *arrays: NDArray[Any] | None) -> Any:
    """The arrays as the network takes them: numpy arrays as they are, or tensors on the module's device."""
    return [None if x is None else to_library_of(any_weight(net), x) for x in arrays]


def any_weight(net: Network) -> Any:
    """One of the network's weights, whose type, dtype and device are those of the network."""
    side = net.decoder if isinstance(net, Seq2Seq) else net
    return side.embed.tokens.weight


def without_gradients(net: Network) -> AbstractContextManager[None]:
    """PyTorch's inference mode; nothing for numpy, which records no gradients."""
    xp = library_of(any_weight(net))
    return nullcontext() if xp is np else xp.inference_mode()


def to_numpy(X: Any) -> Floats:
    """A network's output as a numpy array of float32."""
    listed: Floats = X.astype(np.float32, copy=False) if isinstance(X, np.ndarray) else X.float().cpu().numpy()
    return listed


def prepare_for_decoding(net: Network) -> None:
    """Give a module's weights the memory layout that is fast for one-row products; numpy's stay as they are."""
    if not isinstance(any_weight(net), np.ndarray):
        from regard.model.module import pack_for_decoding

        pack_for_decoding(net)


class NetworkDecoder(ABC):
    """What both kinds of `Decoder` share: prefill and decode steps of a network with a KV cache."""

    net: Any
    cache: Any
    ids: Any  # of the prompts

    def prefill(self) -> Floats:
        return self._logits(self.ids)

    def step(self, ids: Sequence[int]) -> Floats:
        return self._logits(*as_network_arrays(self.net, np.array(ids, np.int64)[:, None]))

    @abstractmethod
    def _logits(self, ids: Any) -> Floats: ...


class ReferenceDecoder(NetworkDecoder):
    """A `Decoder` that continues prompts, padded on the left, so that every step appends one column for all rows."""

    def __init__(self, net: DecoderOnly, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        prepare_for_decoding(net)
        ids, real = pad(prompts, net.spec.pad_id or 0, left=True)
        N = ids.shape[1]
        if real is not None:  # (B, N + max_new_tokens): new tokens are never padding
            real = np.concatenate([real, np.ones((len(prompts), max_new_tokens), bool)], 1)
        self.net, self.cache = net, net.new_cache(N + max_new_tokens)
        self.ids, self.real = as_network_arrays(net, ids, real)

    def pick(self, rows: Sequence[int]) -> None:
        with without_gradients(self.net):
            (index,) = as_network_arrays(self.net, np.array(rows, np.int64))
            self.cache.pick(index)
            self.real = None if self.real is None else self.real[index]

    def _logits(self, ids: Any) -> Floats:
        T = self.cache.length + ids.shape[1]
        with without_gradients(self.net):
            states = self.net.states(ids, None if self.real is None else self.real[:, :T], self.cache)
            return to_numpy(self.net.logits(states[:, -1:])[:, 0])  # only the newest position is unembedded


class ReferenceTranslator(NetworkDecoder):
    """A `Decoder` that generates a target for each source. The encoder runs once; cross attention caches its K and V."""

    def __init__(
        self,
        net: Seq2Seq,
        sources: Sequence[Sequence[int]],
        starts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        fast_layout: bool = True,  # False while the network is being trained
    ) -> None:
        if fast_layout:
            prepare_for_decoding(net)
        source, source_real = pad(sources, net.spec.pad_id or 0, left=False)
        start, real = pad(starts, net.spec.pad_id or 0, left=True)
        assert real is None, "all targets must start with the same number of tokens"
        self.net, self.cache = net, net.new_cache(start.shape[1] + max_new_tokens)
        self.ids, source, self.source_real = as_network_arrays(net, start, source, source_real)
        with without_gradients(net):
            self.memory = net.encode(source, self.source_real)

    def pick(self, rows: Sequence[int]) -> None:
        with without_gradients(self.net):
            (index,) = as_network_arrays(self.net, np.array(rows, np.int64))
            self.cache.pick(index)
            self.memory = self.memory[index]
            self.source_real = None if self.source_real is None else self.source_real[index]

    def _logits(self, ids: Any) -> Floats:
        with without_gradients(self.net):
            states = self.net.states(ids, self.memory, self.source_real, cache=self.cache)
            return to_numpy(self.net.logits(states[:, -1:])[:, 0])
