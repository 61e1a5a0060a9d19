"""The KV cache: a later word changes nothing for earlier ones, so their keys and values are computed once and kept."""

import numpy as np

from regard.explain.trace import Array
from regard.model.transformer import DecoderOnly
from regard.nn.attention import MultiHead
from regard.nn.cache import LayerCache
from regard.nn.part import with_arrays
from regard.teach.lesson.step import Load, Step, capture, matrix, on_page

LENGTHS = (4, 16, 64, 256, 1024)
W_K, W_V = "1 0; 0 1; 1 1; 0 0", "1 0; 0 2; 0 0; 1 1"


def kv_cache(load: Load) -> list[Step]:
    E = matrix("1 0 1 0; 0 1 0 1; 1 1 1 1; 1 1 0 0")
    before, after, cached = captured(E[:3]), captured(E), continued(E)
    K, V, M = (after[name] for name in ("K", "V", "M"))
    net = load("toy-gpt").reference
    assert isinstance(net, DecoderOnly)
    stack = net.spec.stacks["decoder"]
    layers, heads, d_k = stack.n_layers, stack.attention.kv_heads, stack.attention.d_k
    numbers = 2 * layers * heads * d_k
    return [
        Step("Three words have been read, and a fourth comes. These are the keys of all four.", "K = X W_k", K[0]),
        Step(
            "What does the fourth word change for the first three? Behind a causal mask a word sees "
            "itself and what came before, and that is what it was.",
            "M (4 words) - M (3 words)",
            M[:3] - before["M"],
            rows=("The", "cat", "sat"),
            question="How large is the largest change?",
            choices=("0", "a little", "I don’t know"),
            right="0",
            answer="Every number is 0.",
            state=on_page("The cat sat down"),
        ),
        Step(
            "So keys and values of the first three need not be computed again. The cache holds them: K and V, side by "
            "side.",
            "[K V] in the cache",
            np.concatenate([K[0], V[0]], 1)[:3],
            rows=("The", "cat", "sat"),
            columns=("k₁", "k₂", "v₁", "v₂"),
        ),
        Step(
            "Only the new word is computed: one query, against four keys of which three were there.",
            "A of the new word",
            cached["weights"][0],
            rows=("down",),
            columns=("The", "cat", "sat", "down"),
        ),
        Step(
            "What comes of it is what comes of all four at once, with no cache.",
            "M cached - M whole",
            cached["M"] - M[3:],
            rows=("down",),
        ),
        Step(
            "Rows of Q, K and V that are computed to write a text of N words one by one. Without a cache every word "
            "computes all before it again: N(N + 1)/2 rows instead of N.",
            "rows computed",
            np.array([[n * (n + 1) / 2, n] for n in LENGTHS]),
            rows=tuple(f"N = {n}" for n in LENGTHS),
            columns=("without", "with a cache"),
            question="To write the 1024th word, how many rows does a model with a cache compute?",
            choices=("1", "1024", "I don’t know"),
            right="1",
            answer="One, however long the text is.",
        ),
        Step(
            f"What it costs is memory: 2 × {layers} blocks × {heads} heads × {d_k} = {numbers} numbers for "
            "every token of toy-gpt, kept as long as the text goes on.",
            "numbers in the cache",
            np.array([[float(numbers * n)] for n in LENGTHS]),
            rows=tuple(f"N = {n}" for n in LENGTHS),
            state=on_page("The cat sat down", 0, fresh=4),
        ),
    ]


def attention() -> MultiHead:
    """One causal head of two numbers; each W is stored transposed."""
    weights = {"W_q": matrix(W_K), "W_k": matrix(W_K), "W_v": matrix(W_V), "W_o": np.eye(2, 4)}
    part = MultiHead(4, 1, 1, 2, causal=True, bias=False)
    return with_arrays(part, {f"{name}.weight": W.T for name, W in weights.items()})


def captured(X: Array) -> dict[str, Array]:
    return capture(lambda: attention()(X))


def continued(X: Array) -> dict[str, Array]:
    """The last word alone, with the keys and values of the others in a cache."""
    part, cache = attention(), LayerCache(len(X))
    part(X[None, :-1], cache=cache)
    alone = capture(lambda: part(X[None, -1:], cache=cache))
    return {name: x[0] for name, x in alone.items()}
