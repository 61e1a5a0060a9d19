"""Ids and texts in, numbers and answers out: what a `Model` does by running its network over whole texts, in PyTorch.

In: a model and what it shall read. Out: logits, vectors, classes, tags, filled masks, log-probabilities. An encoder's
states come from the native engine where it can.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.api.fit import encode_all, fit
from regard.engine.decode import pad
from regard.engine.encode import Progress, pool, run_batched
from regard.engine.fast import common
from regard.errors import GenerationError, TaskError, TooLong, no_row, quoted
from regard.model.transformer import DecoderOnly, EncoderOnly, Seq2Seq, class_logits

if TYPE_CHECKING:
    from regard.api.model import Model

Ids = Sequence[int] | Sequence[Sequence[int]] | Tensor


class Scores(list[float]):
    """Log-probabilities of the tokens of a text, and the tokens. The first token, having no context, has none."""

    def __init__(self, logprobs: Sequence[float], ids: Sequence[int], tokens: Sequence[str]) -> None:
        super().__init__(logprobs)
        self.ids, self.tokens = list(ids), list(tokens)

    @property
    def perplexity(self) -> float:
        return float(torch.tensor(list(self), dtype=torch.float64).mean().neg().exp())


@dataclass(frozen=True)
class Tagged:
    """A word of a text, its tag, and how sure the model is."""

    word: str
    tag: str
    probability: float
    start: int
    end: int


# ── ids in, numbers out ─────────────────────────────────────────────────────────────────────────────────────────────


@torch.no_grad()
def run(model: "Model", ids: Ids, target_ids: Ids | None, mask: Ids | None, types: Ids | None) -> Tensor:
    net, spec = model.net, model.spec
    ids, given = batch(model, ids, "ids", spec.source_vocab, spec.source_context)
    real = given if mask is None else like(mask, ids, "mask").bool()
    if isinstance(net, EncoderOnly):
        return net(ids, real, None if types is None else like(types, ids, "types"))
    if isinstance(net, DecoderOnly):
        return net(ids, real)
    if spec.head.kind == "classify":
        return class_logits(net, ids, real)
    if target_ids is None:
        raise TaskError("An encoder-decoder also needs target_ids: what its decoder has written so far.")
    target, target_real = batch(model, target_ids, "target_ids", spec.n_vocab, spec.context)
    if len(target) != len(ids):
        raise TaskError(f"There are {len(ids)} sources but {len(target)} targets.")
    return net(ids, target, real, target_real)


def batch(model: "Model", ids: Ids, name: str, n_vocab: int, limit: int) -> tuple[Tensor, Tensor | None]:
    """Ids as (B, N), rows of different lengths padded on the right, checked against the vocabulary."""
    real = None
    if isinstance(ids, Tensor):
        made = ids[None] if ids.dim() == 1 else ids
    else:
        rows = ids if ids and isinstance(ids[0], Sequence) else [ids]
        listed = [whole(row, name, n_vocab) for row in rows]
        made, real = pad(listed, model.spec.pad_id or 0, left=False, device=model.device)
    if made.dim() != 2 or not made.numel() or made.is_floating_point():
        raise TaskError(f"{name} must be a list of token ids or a batch of them, not of shape {tuple(made.shape)}.")
    check_range((int(made.min()), int(made.max())), name, n_vocab)
    if model.spec.learns_positions and made.shape[1] > limit:
        raise TaskError(f"{name} are {made.shape[1]} tokens long, but the model has {limit} positions.")
    return made.to(model.device, torch.long), real


def whole(ids: Any, name: str, n_vocab: int) -> list[int]:
    """Given ids as whole numbers of Python, which a tensor can hold."""
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


def like(values: Ids, ids: Tensor, name: str) -> Tensor:
    tensor = torch.as_tensor(values, device=ids.device)
    tensor = tensor[None] if tensor.dim() == 1 else tensor
    if tensor.shape != ids.shape:
        raise TaskError(f"{name} has shape {tuple(tensor.shape)}, but the ids have {tuple(ids.shape)}.")
    return tensor


# ── texts in, answers out ───────────────────────────────────────────────────────────────────────────────────────────


def embed(model: "Model", texts: list[str | Sequence[int]], truncate: bool, progress: Progress | None) -> Tensor:
    if not texts:
        return torch.empty(0, model.spec.d)
    p = model.pooling
    rows = fit(model, encode_all(model, texts), truncate, p.max_tokens)
    if model.spec.kind == "encoder" and (engine := model.engine) is not None:
        vectors = []
        for done, states in enumerate(engine.states(rows), 1):
            vectors.append(pool(torch.from_numpy(states)[None], None, p.mode, p.normalise)[0])
            if progress is not None:
                progress(done, len(rows))
        return torch.stack(numbers_of("vector", vectors, texts))
    net = model.net

    def vectors_of(ids: Tensor, real: Tensor | None, which: list[int]) -> Tensor:
        states = net.encode(ids, real) if isinstance(net, Seq2Seq) else net.states(ids, real)
        return pool(states, real, p.mode, p.normalise)

    return torch.stack(numbers_of("vector", batched(model, rows, vectors_of, progress), texts)).cpu().clone()


def numbers_of(what: str, results: list[Tensor], texts: Sequence[Any]) -> list[Tensor]:
    """The results, if they are numbers: NaN and infinity are no answer, as where text is written."""
    for x, text in zip(results, texts, strict=True):
        if not x.isfinite().all():
            odd = float(x[~x.isfinite()][0])
            raise GenerationError(f"The {what} of {quoted(text, 40)} holds {odd}: the model's weights are damaged.")
    return results


def classify(model: "Model", texts: list[str], truncate: bool, progress: Progress | None) -> list[dict[str, float]]:
    def probabilities(ids: Tensor, real: Tensor | None, which: list[int]) -> Tensor:
        return class_logits(model.net, ids, real).float().softmax(-1)

    results = batched(model, fit(model, encode_all(model, texts), truncate), probabilities, progress)
    results = numbers_of("answer", results, texts)
    named = [dict(zip(model.spec.head.labels, P.tolist(), strict=True)) for P in results]
    return [dict(sorted(each.items(), key=lambda item: -item[1])) for each in named]


def tag(model: "Model", texts: list[str], truncate: bool, progress: Progress | None) -> list[list[Tagged]]:
    net = model.net
    words = [model.tokenizer.words(text) for text in texts]
    encoded = [model.tokenizer.encode_words([w for w, _, _ in each]) for each in words]
    rows = fit(model, [ids for ids, _ in encoded], truncate)

    def probabilities(ids: Tensor, real: Tensor | None, which: list[int]) -> Tensor:
        return net(ids, real).float().softmax(-1)

    results = batched(model, rows, probabilities, progress)
    results = numbers_of("answer", [P[: len(row)] for P, row in zip(results, rows, strict=True)], texts)
    return [tagged(model, text, P, index) for text, P, (_, index) in zip(words, results, encoded, strict=True)]


def tagged(model: "Model", words: list[tuple[str, int, int]], P: Tensor, index: list[int | None]) -> list[Tagged]:
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
    ids = fitting(model, model.tokenizer.encode(text, allow_control=True, most=limit), limit)
    mask = model.tokenizer.mask_id
    places = [i for i, id in enumerate(ids) if id == mask]
    if not places:
        spelt = model.tokenizer.token(mask) if mask is not None else "a mask token"
        raise TaskError(f"The text has no {spelt} to fill.")
    (P,) = numbers_of("answer", [model(ids)[0].float().softmax(-1)], [text])
    answers = []
    for place in places:
        best = P[place].topk(min(top_k, P.shape[-1]))
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        answers.append([filled(model, ids, place, id, p) for id, p in rows])
    return answers[0] if len(answers) == 1 else answers


def filled(model: "Model", ids: list[int], place: int, id: int, probability: float) -> dict[str, Any]:
    tokenizer = model.tokenizer
    mask, special = tokenizer.mask_id, tokenizer.special_ids
    whole = [i for i in [*ids[:place], id, *ids[place + 1 :]] if i == mask or i not in special]
    text = tokenizer.decode(whole, skip_special=False)
    return {"token": tokenizer.decode([id]).strip(), "id": id, "probability": probability, "text": text}


def score(model: "Model", text: str, target: str | None) -> Scores:
    tokenizer, spec, first = model.tokenizer, model.spec, 1
    if spec.kind == "encoder-decoder":
        if target is None:
            raise TaskError("An encoder-decoder scores a target given a source: score(text, target).")
        source = fitting(model, tokenizer.encode(text, most=spec.source_context), spec.source_context)
        start = model.settings.decoder_start_token_id or 0
        written = [start, *tokenizer.encode(target, most=spec.context)]
        given = [source, fitting(model, written, spec.context)]
    else:
        whole = tokenizer.encode(text, most=spec.context)
        written, first = (whole, 1) if target is None else continued(model, text, target)
        given = [fitting(model, written, spec.context)]
    scored = written[first:]
    if not scored:
        return Scores([], [], [])
    P = model(*given)[0, first - 1 : -1].float().log_softmax(-1)
    logprobs = P[torch.arange(len(scored)), torch.tensor(scored, device=P.device)]
    return Scores(logprobs.tolist(), scored, tokenizer.pieces(scored))


def continued(model: "Model", context: str, continuation: str) -> tuple[list[int], int]:
    """The ids of both as one text, and where those of the continuation begin: where they differ from the context's own."""
    before, ids = (model.tokenizer.encode_open(text, model.spec.context) for text in (context, context + continuation))
    first = common(before, ids, min(len(before), len(ids)))
    return (ids, first) if first else ([model.first_token(), *ids], 1)


def fitting(model: "Model", ids: list[int], most: int) -> list[int]:
    if len(ids) > most:
        raise TooLong(f"The text has {len(ids):,} tokens, but {model.name} reads at most {most:,}: shorten it.")
    return ids


def batched(model: "Model", rows: list[list[int]], run: Any, progress: Progress | None) -> list[Tensor]:
    return run_batched(rows, run, pad_id=model.spec.pad_id or 0, device=model.device, progress=progress)
