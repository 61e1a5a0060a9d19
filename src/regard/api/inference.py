"""Forward passes of a `Model` over whole texts: logits, embeddings, classes, tags, filled masks, log-probabilities.

In: a model, and ids or texts. Out: numpy arrays, or lists of results. An encoder's states come from the native engine where
it can, and its head then runs on numpy; everything else is computed by the reference or, if requested, by PyTorch. For ids
that are PyTorch tensors the results are tensors, from PyTorch's module.
"""

import math
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from regard.api.truncation import encode_all, fit
from regard.engine.encode import Progress, pool, run_batched
from regard.engine.native_engine import common_prefix
from regard.engine.reference_decoder import Ids as IdArray
from regard.engine.reference_decoder import Real, as_network_arrays, pad, to_numpy, without_gradients
from regard.engine.sampling import logprobs
from regard.engine.top_k import Floats
from regard.errors import GenerationError, TaskError, TooLong, no_row, quoted
from regard.model.reference import Network, Seq2Seq
from regard.model.transformer import DecoderOnly, EncoderOnly, class_logits
from regard.nn.operations import softmax

if TYPE_CHECKING:
    from torch import Tensor

    from regard.api.model import Model

Ids: TypeAlias = "Sequence[int] | Sequence[Sequence[int]] | IdArray | Tensor"


class Scores(list[float]):
    """Log-probabilities of the tokens of a text, and the tokens. The first token has no context and so no probability."""

    def __init__(self, logprobs: Sequence[float], ids: Sequence[int], tokens: Sequence[str]) -> None:
        super().__init__(logprobs)
        self.ids, self.tokens = list(ids), list(tokens)

    @property
    @np.errstate(over="ignore")
    def perplexity(self) -> float:
        return float(np.exp(-np.mean(self))) if self else math.nan


@dataclass(frozen=True)
class Tagged:
    """A word of a text, its tag, and the tag's probability."""

    word: str
    tag: str
    probability: float
    start: int
    end: int


# ── ids in, numbers out ─────────────────────────────────────────────────────────────────────────────────────────────


def run(model: "Model", ids: Ids, target_ids: "Ids | None", mask: "Ids | None", types: "Ids | None") -> Any:
    net = model.net if is_tensor(ids) else model.network
    if is_tensor(ids):
        with sys.modules["torch"].no_grad():  # unlike inference_mode, it returns tensors that can be used with autograd
            return run_network(model, net, ids, target_ids, mask, types)
    with without_gradients(net):
        return to_numpy(run_network(model, net, ids, target_ids, mask, types))


def run_network(
    model: "Model", net: Network, ids: Ids, target_ids: "Ids | None", mask: "Ids | None", types: "Ids | None"
) -> Any:
    spec = model.spec
    ids, unpadded = batch(model, ids, "ids", spec.source_vocab, spec.source_context)
    real = unpadded if mask is None else same_shape(mask, ids, "mask").astype(bool)
    if isinstance(net, EncoderOnly):
        return net(*as_network_arrays(net, ids, real, None if types is None else same_shape(types, ids, "types")))
    if isinstance(net, DecoderOnly):
        return net(*as_network_arrays(net, ids, real))
    if spec.head.kind == "classify":
        return class_logits(net, *as_network_arrays(net, ids, real))
    if target_ids is None:
        raise TaskError("An encoder-decoder also needs target_ids, the input of its decoder.")
    target, target_real = batch(model, target_ids, "target_ids", spec.n_vocab, spec.context)
    if len(target) != len(ids):
        raise TaskError(f"There are {len(ids)} sources but {len(target)} targets.")
    return net(*as_network_arrays(net, ids, target, real, target_real))


def is_tensor(x: Any) -> bool:
    """Whether it is a PyTorch tensor; does not import PyTorch, which is imported already if it is."""
    return isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ()))


def as_array(x: Any) -> Any:
    return x.detach().cpu().numpy() if is_tensor(x) else np.asarray(x)


def batch(model: "Model", ids: Ids, name: str, n_vocab: int, limit: int) -> tuple[IdArray, Real | None]:
    """Ids as (B, N), rows of different lengths padded on the right, checked against the vocabulary."""
    real = None
    if isinstance(ids, np.ndarray) or is_tensor(ids):
        array = as_array(ids)
        array = array[None] if array.ndim == 1 else array
    else:
        rows = ids if len(ids) and isinstance(ids[0], Sequence | np.ndarray) else [ids]
        listed = [as_ids(row, name, n_vocab) for row in rows]
        array, real = pad(listed, model.spec.pad_id or 0, left=False)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iu":
        raise TaskError(f"{name} must be a list of token ids or a batch of them, not of shape {tuple(array.shape)}.")
    check_range((int(array.min()), int(array.max())), name, n_vocab)
    if model.spec.learns_positions and array.shape[1] > limit:
        raise TaskError(f"{name} are {array.shape[1]} tokens long, but the model has {limit} positions.")
    return array.astype(np.int64), real


def as_ids(ids: Any, name: str, n_vocab: int) -> list[int]:
    """The ids as Python integers within the vocabulary."""
    try:
        listed = [operator.index(id) for id in ids]
    except TypeError:
        raise TaskError(f"{name} must be token ids, which are whole numbers.") from None
    check_range(listed, name, n_vocab)
    return listed


def check_range(ids: Iterable[int], name: str, n_vocab: int) -> None:
    for id in ids:
        if not 0 <= id < n_vocab:
            raise TaskError(no_row(id, n_vocab, name))


def same_shape(values: Ids, ids: IdArray, name: str) -> Any:
    """The values as an array of the same shape as the ids; refused otherwise."""
    array = as_array(values)
    array = array[None] if array.ndim == 1 else array
    if array.shape != ids.shape:
        raise TaskError(f"{name} has shape {tuple(array.shape)}, but the ids have {tuple(ids.shape)}.")
    return array


# ── texts in, answers out ───────────────────────────────────────────────────────────────────────────────────────────


def embed(model: "Model", texts: list[str | Sequence[int]], truncate: bool, progress: Progress | None) -> Floats:
    if not texts:
        return np.empty((0, model.spec.d), np.float32)
    p = model.pooling
    rows = fit(model, encode_all(model, texts), truncate, p.max_tokens)

    def vectors(states: Floats, real: Real | None) -> Floats:
        return pool(states, real, p.mode, p.normalise)

    def of_network(net: Network, ids: Any, real: Any) -> Any:
        return net.encode(ids, real) if isinstance(net, Seq2Seq) else net.states(ids, real)

    if model.spec.kind == "encoder" and model.engine is not None:
        found = run_native(model, rows, lambda states: vectors(states[None], None)[0], progress)
    else:
        found = run_reference(model, rows, of_network, vectors, progress)
    return np.stack(check_finite("vector", found, texts))


def run_native(
    model: "Model", rows: list[list[int]], answer: Callable[[Floats], Floats], progress: Progress | None
) -> list[Floats]:
    """`answer(states)` for each row, with the states (N, d) from the native engine."""
    assert model.engine is not None
    found = []
    for done, states in enumerate(model.engine.states(rows), 1):
        found.append(answer(states))
        if progress is not None:
            progress(done, len(rows))
    return found


def run_reference(
    model: "Model",
    rows: list[list[int]],
    compute: Callable[[Network, Any, Any], Any],
    answer: Callable[[Floats, Real | None], Floats],
    progress: Progress | None,
) -> list[Floats]:
    """`answer(computed, real)` for each batch of rows, with what `compute` returns for it, row by row."""
    net = model.network

    def run(ids: IdArray, real: Real | None) -> list[Floats]:
        with without_gradients(net):
            return list(answer(to_numpy(compute(net, *as_network_arrays(net, ids, real))), real))

    return run_batched(rows, run, pad_id=model.spec.pad_id or 0, progress=progress)


def probabilities(model: "Model", rows: list[list[int]], progress: Progress | None) -> list[Floats]:
    """The probabilities of the classes, (n_labels,), or of each token's tags, (N, n_labels), for each row."""
    if model.spec.kind == "encoder" and model.engine is not None:
        head = model.head
        return run_native(model, rows, lambda states: softmax(to_numpy(head.outputs(states[None])))[0], progress)

    def of_network(net: Network, ids: Any, real: Any) -> Any:
        return class_logits(net, ids, real) if model.spec.head.kind == "classify" else net(ids, real)

    return run_reference(model, rows, of_network, lambda logits, real: softmax(logits), progress)


def check_finite(what: str, results: list[Floats], texts: Sequence[Any]) -> list[Floats]:
    """The results, if all are finite: NaN and infinity are errors, as in generation."""
    for x, text in zip(results, texts, strict=True):
        if not np.isfinite(x).all():
            odd = float(x[~np.isfinite(x)][0])
            raise GenerationError(f"The {what} of {quoted(text, 40)} holds {odd}: the model's weights are damaged.")
    return results


def classify(model: "Model", texts: list[str], truncate: bool, progress: Progress | None) -> list[dict[str, float]]:
    results = probabilities(model, fit(model, encode_all(model, texts), truncate), progress)
    results = check_finite("answer", results, texts)
    named = [dict(zip(model.spec.head.labels, P.tolist(), strict=True)) for P in results]
    return [dict(sorted(each.items(), key=lambda item: -item[1])) for each in named]


def tag(model: "Model", texts: list[str], truncate: bool, progress: Progress | None) -> list[list[Tagged]]:
    words = [model.tokenizer.words(text) for text in texts]
    encoded = [model.tokenizer.encode_words([w for w, _, _ in each]) for each in words]
    rows = fit(model, [ids for ids, _ in encoded], truncate)
    results = probabilities(model, rows, progress)
    results = check_finite("answer", [P[: len(row)] for P, row in zip(results, rows, strict=True)], texts)
    return [tagged(model, text, P, index) for text, P, (_, index) in zip(words, results, encoded, strict=True)]


def tagged(model: "Model", words: list[tuple[str, int, int]], P: Floats, index: list[int | None]) -> list[Tagged]:
    found, seen = [], set[int]()
    for position, word in enumerate(index[: len(P)]):
        if word is not None and word not in seen:
            seen.add(word)
            best = int(P[position].argmax())
            text, start, end = words[word]
            found.append(Tagged(text, model.spec.head.labels[best], float(P[position, best]), start, end))
    return found


def fill(model: "Model", text: str, top_k: int) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
    limit = model.spec.context
    ids = check_length(model, model.tokenizer.encode(text, allow_control=True, most=limit), limit)
    mask = model.tokenizer.mask_id
    positions = [i for i, id in enumerate(ids) if id == mask]
    if not positions:
        name = model.tokenizer.token(mask) if mask is not None else "a mask token"
        raise TaskError(f"The text has no {name} to fill.")
    (P,) = check_finite("answer", [masked_probabilities(model, ids, positions)], [text])  # (masks, n_vocab)
    answers = []
    for position, row in zip(positions, P, strict=True):
        best = np.argsort(-row, kind="stable")[: min(top_k, len(row))]
        answers.append([filled(model, ids, position, id, float(row[id])) for id in best.tolist()])
    return answers[0] if len(answers) == 1 else answers


def masked_probabilities(model: "Model", ids: list[int], positions: list[int]) -> Floats:
    """Probabilities over the vocabulary at these positions only, (positions, n_vocab)."""
    if (engine := model.engine) is not None:
        (states,) = engine.states([ids])
        logits = model.head.outputs(states[None, positions])
    else:
        net = model.network
        assert isinstance(net, EncoderOnly)
        with without_gradients(net):
            logits = net.outputs(net.states(*as_network_arrays(net, np.array([ids])))[:, positions])
    found: Floats = softmax(to_numpy(logits))[0]
    return found


def filled(model: "Model", ids: list[int], position: int, id: int, probability: float) -> dict[str, Any]:
    """One candidate for a mask, with the text that it makes."""
    tokenizer = model.tokenizer
    mask, special = tokenizer.mask_id, tokenizer.special_ids
    replaced = [i for i in [*ids[:position], id, *ids[position + 1 :]] if i == mask or i not in special]
    text = tokenizer.decode(replaced, skip_special=False)
    return {"token": tokenizer.decode([id]).strip(), "id": id, "probability": probability, "text": text}


def score(model: "Model", text: str, target: str | None) -> Scores:
    tokenizer, spec, first = model.tokenizer, model.spec, 1
    if spec.kind == "encoder-decoder":
        if target is None:
            raise TaskError("An encoder-decoder scores a target given a source: score(text, target).")
        source = check_length(model, tokenizer.encode(text, most=spec.source_context), spec.source_context)
        start = model.settings.decoder_start_token_id or 0
        ids = [start, *tokenizer.encode(target, most=spec.context)]
        inputs = [source, check_length(model, ids, spec.context)]
    else:
        whole = tokenizer.encode(text, most=spec.context)
        ids, first = (whole, 1) if target is None else encode_continuation(model, text, target)
        inputs = [check_length(model, ids, spec.context)]
    scored = ids[first:]
    if not scored:
        return Scores([], [], [])
    logits = np.ascontiguousarray(model(*inputs)[0, first - 1 : -1])
    found = logprobs(logits, np.array(scored)[:, None])[:, 0]
    return Scores(found.tolist(), scored, tokenizer.pieces(scored))


def encode_continuation(model: "Model", context: str, continuation: str) -> tuple[list[int], int]:
    """The ids of context + continuation as one text, and the first index at which they differ from the context's ids."""
    before, ids = (model.tokenizer.encode_open(text, model.spec.context) for text in (context, context + continuation))
    first = common_prefix(before, ids, min(len(before), len(ids)))
    return (ids, first) if first else ([model.first_token(), *ids], 1)


def check_length(model: "Model", ids: list[int], limit: int) -> list[int]:
    if len(ids) > limit:
        raise TooLong(f"The text has {len(ids):,} tokens, but {model.name} reads at most {limit:,}: shorten it.")
    return ids
