"""Requests that run outside the scheduler's slots: embeddings, translations, tokenization, replays for `explain`.

A few of them compute at a time, in threads; as many may wait as may wait for a slot, and further ones get 429. Before each
batch of texts it is checked that the client is still connected.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import anyio.to_thread
from fastapi import Request

from regard.api import Model
from regard.engine.generate import Answer
from regard.engine.top_k import Floats
from regard.errors import GenerationError, TaskError, TokenizerError, TooLong
from regard.serve.request_schema import EmbeddingRequest, TranslationRequest
from regard.serve.request_stream import ClientGone
from regard.serve.served_models import ServedModels
from regard.text.tokenizer import Tokenizer

WORKERS = 2  # requests that compute at the same time
LONG_TEXTS = 1  # requests with bodies above LONG_BODY that are tokenized at the same time
LONG_BODY = 64 << 10  # bytes
BATCH = 16  # texts

T = TypeVar("T")
TextOrIds = str | list[int]


async def run_limited(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Run `work` in one of the few threads for computing outside the slots."""
    return await anyio.to_thread.run_sync(work, *arguments, limiter=request.app.state.work_limiter)


async def run_tokenizing(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Run `work` that tokenizes in a thread. Requests with long texts have a smaller limit of their own, which bounds their
    memory and leaves threads and cores to the others."""
    long = len(await request.body()) > LONG_BODY
    limiter = request.app.state.long_text_limiter if long else request.app.state.work_limiter
    return await anyio.to_thread.run_sync(work, *arguments, limiter=limiter)


async def run_admitted(request: Request, work: Callable[..., T], *arguments: Any) -> T:
    """Run `work` in a thread: at once if its texts are short, else when it is admitted (429 if too many wait)."""
    if len(await request.body()) <= LONG_BODY:
        return await anyio.to_thread.run_sync(work, *arguments)
    with request.app.state.served.admit():
        return await run_tokenizing(request, work, *arguments)


async def run_batches(request: Request, work: Callable[[Sequence[Any]], list[T]], texts: Sequence[Any]) -> list[T]:
    """Run `work` on batches of texts, as long as the client is connected."""
    done: list[T] = []
    for first in range(0, len(texts), BATCH):
        if await request.is_disconnected():
            raise ClientGone
        done += await run_limited(request, work, texts[first : first + BATCH])
    return done


def encode_inputs(model: Model, texts: Sequence[TextOrIds], limit: int) -> list[list[int]]:
    """The ids of each text. A text with more than `limit` tokens is refused: nothing is truncated silently."""
    rows, tokenizer = list[list[int]](), model.tokenizer
    for i, text in enumerate(texts):
        try:
            ids = tokenizer.encode(text, most=limit) if isinstance(text, str) else check_ids(tokenizer, text, "input")
        except TooLong:
            raise GenerationError(f"input has more than {limit:,} tokens in text {i}; {limit:,} fit.") from None
        if len(ids) > limit:
            raise GenerationError(f"input has {len(ids):,} tokens in text {i}; {limit:,} fit.")
        rows.append(ids)
    return rows


def check_ids(tokenizer: Tokenizer, ids: list[int], field: str) -> list[int]:
    """The ids, if each is a token's. The error names the request's field (the tokenizer's own would name its file)."""
    for id in sorted(set(ids), reverse=True):
        try:
            tokenizer.token(id)
        except TokenizerError:
            raise GenerationError(
                f"{field} has {id}, which is no token: ids go from 0 to {tokenizer.n_vocab - 1}."
            ) from None
    return ids


# ── embeddings ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def embed(request: Request, body: EmbeddingRequest) -> dict[str, Any]:
    texts = body.texts()

    def open() -> tuple[Model, list[list[int]]]:
        model = served.model(body.model)
        limit = min(model.pooling.max_tokens or model.spec.context, model.spec.source_context)
        return model, encode_inputs(model, texts, limit)

    served: ServedModels = request.app.state.served
    with served.admit():
        model, rows = await run_tokenizing(request, open)
        tokens = sum(map(len, rows))
        request.scope["facts"].update(model=body.model, prompt_tokens=tokens)
        inputs = [ids or text for ids, text in zip(rows, texts, strict=True)]  # an empty list of ids is not a text
        vectors = await run_batches(
            request, lambda some: list(encode_vectors(model.embed(some), body.encoding_format)), inputs
        )
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}


def encode_vectors(vectors: Floats, format: str | None) -> Iterator[Any]:
    """Each vector as the response has it: little-endian float32 in base64, or a list of floats."""
    for vector in vectors:
        yield base64.b64encode(vector.astype("<f4").tobytes()).decode() if format == "base64" else vector.tolist()


# ── translations ────────────────────────────────────────────────────────────────────────────────────────────────────


async def translate(request: Request, body: TranslationRequest) -> dict[str, Any]:
    texts, served, facts = body.texts(), request.app.state.served, request.scope["facts"]

    def open() -> tuple[Model, int]:
        model = served.model(body.model)
        if model.spec.kind != "encoder-decoder" or model.spec.head.kind != "lm":
            raise TaskError(f"{body.model} does not translate; this needs an encoder-decoder (BART, Marian, …).")
        return model, sum(map(len, encode_inputs(model, texts, model.spec.source_context)))

    with served.admit():
        model, tokens = await run_tokenizing(request, open)
        facts |= {"model": body.model, "prompt_tokens": tokens, "answers": len(texts)}

        def generate(some: Sequence[str]) -> list[Answer]:
            return [best for best, *_ in model.answers(some, **body.sampling())]

        answers = await run_batches(request, generate, texts)
    facts["completion_tokens"] = generated = sum(len(answer.ids) for answer in answers)
    data = [
        {"object": "translation", "index": i, "text": answer.text, "finish_reason": answer.finished}
        for i, answer in enumerate(answers)
    ]
    usage = {"prompt_tokens": tokens, "completion_tokens": generated, "total_tokens": tokens + generated}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}
