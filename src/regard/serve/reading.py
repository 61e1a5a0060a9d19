"""Requests whose texts are read whole, beside those that are written in slots: vectors, translations, replays.

A few of them compute at a time, in threads; as many may wait for their turn as may wait for a slot, and who comes after
them is refused. Between two batches it is asked whether the client is still there.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
from fastapi import Request

from regard.api import Model
from regard.engine.generate import Answer
from regard.errors import GenerationError, TaskError, TokenizerError, TooLong
from regard.serve.call import Gone
from regard.serve.engines import Engines
from regard.serve.wire import EmbeddingWish, TranslationWish
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

READERS = 2  # that compute at the same time
LONG_TEXTS = 1  # requests whose texts are tokenised at the same time, if their bodies have more than
LONG_BODY = 64 << 10  # bytes
BATCH = 16  # texts

T = TypeVar("T")
Given = str | list[int]


async def computed(request: Request, work: Callable[..., T], *given: Any) -> T:
    """What `work` returns, from a thread, when it is its turn."""
    return await anyio.to_thread.run_sync(work, *given, limiter=request.app.state.readers)


async def beside(request: Request, work: Callable[..., T], *given: Any) -> T:
    """What `work` returns, from a thread. Of requests with long texts only a few at a time, so that tokenising them takes
    little memory and leaves threads and processors to the others; as many may wait for that as may wait for a slot."""
    if len(await request.body()) <= LONG_BODY:
        return await anyio.to_thread.run_sync(work, *given)
    with request.app.state.engines.reading():
        return await anyio.to_thread.run_sync(work, *given, limiter=request.app.state.long_texts)


async def batched(request: Request, work: Callable[[Sequence[Any]], list[T]], texts: Sequence[Any]) -> list[T]:
    """`work` on a few texts after the others, as long as somebody waits for it."""
    done: list[T] = []
    for first in range(0, len(texts), BATCH):
        if await request.is_disconnected():
            raise Gone
        done += await computed(request, work, texts[first : first + BATCH])
    return done


def fitting(model: Model, texts: Sequence[Given], most: int) -> int:
    """The number of tokens in all. A text that does not fit is refused: nothing is left out unsaid."""
    total, tokenizer = 0, model.tokenizer
    for i, text in enumerate(texts):
        try:
            ids = tokenizer.encode(text, most=most) if isinstance(text, str) else known(tokenizer, text, "input")
        except TooLong:
            raise GenerationError(f"input has more than {most:,} tokens in text {i}; {most:,} fit.") from None
        if len(ids) > most:
            raise GenerationError(f"input has {len(ids):,} tokens in text {i}; {most:,} fit.")
        total += len(ids)
    return total


def known(tokenizer: Tokenizer, ids: list[int], field: str) -> list[int]:
    """The ids themselves. One that is no token's is refused by the field it came in; the tokenizer would name its file."""
    for id in sorted(set(ids), reverse=True):
        try:
            tokenizer.token(id)
        except TokenizerError:
            raise GenerationError(
                f"{field} has {id}, which is no token: ids go from 0 to {tokenizer.n_vocab - 1}."
            ) from None
    return ids


# ── vectors ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def embed(request: Request, wish: EmbeddingWish) -> dict[str, Any]:
    texts = wish.texts()

    def open() -> tuple[Model, int]:
        model = engines.model(wish.model)
        most = min(model.pooling.max_tokens or model.spec.context, model.spec.source_context)
        return model, fitting(model, texts, most)

    engines: Engines = request.app.state.engines
    with engines.reading():
        model, tokens = await computed(request, open)
        request.scope["facts"].update(model=wish.model, prompt_tokens=tokens)
        vectors = await batched(request, lambda some: list(spelt(model.embed(some), wish.encoding_format)), texts)
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": wish.model, "usage": usage}


def spelt(vectors: "Tensor", format: str | None) -> Iterator[Any]:
    for vector in vectors.float():
        yield (
            base64.b64encode(vector.numpy().astype("<f4").tobytes()).decode() if format == "base64" else vector.tolist()
        )


# ── translations ────────────────────────────────────────────────────────────────────────────────────────────────────


async def translate(request: Request, wish: TranslationWish) -> dict[str, Any]:
    texts, engines, facts = wish.texts(), request.app.state.engines, request.scope["facts"]

    def open() -> tuple[Model, int]:
        model = engines.model(wish.model)
        if model.spec.kind != "encoder-decoder" or model.spec.head.kind != "lm":
            raise TaskError(f"{wish.model} does not translate; this needs an encoder-decoder (BART, Marian, …).")
        return model, fitting(model, texts, model.spec.source_context)

    with engines.reading():
        model, tokens = await computed(request, open)
        facts |= {"model": wish.model, "prompt_tokens": tokens, "answers": len(texts)}

        def write(some: Sequence[str]) -> list[Answer]:
            return [best for best, *_ in model.answers(some, **wish.sampling())]

        answers = await batched(request, write, texts)
    facts["completion_tokens"] = written = sum(len(answer.ids) for answer in answers)
    data = [
        {"object": "translation", "index": i, "text": answer.text, "finish_reason": answer.finished}
        for i, answer in enumerate(answers)
    ]
    usage = {"prompt_tokens": tokens, "completion_tokens": written, "total_tokens": tokens + written}
    return {"object": "list", "data": data, "model": wish.model, "usage": usage}
