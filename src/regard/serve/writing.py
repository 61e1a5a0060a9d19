"""A request for text, from its wish to its answer: prepared in a thread, written by a scheduler, told whole or as a stream.

What is wrong with a request is raised before the first token, so that it becomes a 4xx and not a broken stream.
"""

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from regard.engine.generate import Answer
from regard.engine.sample import RowState
from regard.engine.schedule import Closed
from regard.engine.settings import Settings
from regard.errors import GenerationError, RegardError
from regard.serve.answer import Json, error_object
from regard.serve.call import Call, Gone
from regard.serve.engines import Engine, Engines
from regard.serve.metrics import FIRST_TOKEN
from regard.serve.reading import beside, computed
from regard.serve.replay import check_explain, explain, prompt_tokens
from regard.serve.speak import Chat, Choice, Envelope, Plain
from regard.serve.wire import TextWish, Wish

Reader = Callable[[Engine], list[tuple[list[int], str]]]  # the prompts as ids, each with what of it is to be repeated


@dataclass
class Prepared:
    """A request that was understood."""

    engine: Engine
    rows: list[RowState]
    choices: list[Choice]
    envelope: Envelope
    shown: tuple[list[int], list[int]] | None  # layers and heads whose attention is wanted


async def write(request: Request, wish: Wish, dialect: type[Chat] | type[Plain], read: Reader) -> Response:
    begin, engines = time.perf_counter(), request.app.state.engines
    if wish.most != 0:
        engines.make_sure(wish.model, wish.n or 1)
    prepared = await beside(request, prepare, engines, wish, dialect, read)
    if isinstance(wish, TextWish) and wish.echo and wish.logprobs is not None:
        with engines.reading():
            await computed(request, read_prompts, prepared, wish)
    facts = request.scope["facts"]
    facts |= {"model": wish.model, "prompt_tokens": prepared.envelope.prompt_tokens, "answers": len(prepared.rows)}
    call, streams = Call(request, prepared.choices), False
    try:
        try:
            call.begin(engines, prepared.engine, prepared.rows, wish.alternatives or 0)
        except Closed:
            prepared.engine = await anyio.to_thread.run_sync(engines.engine, wish.model)
            call.begin(engines, prepared.engine, prepared.rows, wish.alternatives or 0)
        happened = await call.next()
        if call.first is not None:
            request.app.state.metrics.observe(FIRST_TOKEN, call.first - begin, model=wish.model)
        if wish.stream:
            streams = True
            return Spoken(call, spoken(call, happened, prepared.envelope, wish, facts))
        while call.open:
            await call.next()
        facts["completion_tokens"] = call.completion_tokens
        return Json(await whole(request, prepared, call))
    finally:
        if not streams:
            call.close()


def prepare(engines: Engines, wish: Wish, dialect: type[Chat] | type[Plain], read: Reader) -> Prepared:
    """In a thread: loading, tokenising and checking take time."""
    engine = engines.engine(wish.model)
    model, given = engine.model, wish.sampling()
    check_length(wish, engine.context)
    if given["temperature"] is None and model.opened.generation.get("do_sample") is None:
        given["temperature"] = 1.0  # what this interface means by saying nothing, unless the model's own files speak
    given["seed"] = Settings().replace(seed=given["seed"]).seeded().seed
    rows, choices, total = list[RowState](), list[Choice](), 0
    for ids, echoed in read(engine):
        its = model.rows(ids, context=engine.context, **given)
        total += its[0].prompt_length
        choices += [Choice(len(rows) + i, echoed) for i in range(len(its))]
        rows += its
    shown = check_explain(wish.explain, model, rows) if wish.explain is not None else None
    envelope = Envelope(dialect(model.tokenizer, wish.alternatives), wish.model, given["seed"], total)
    return Prepared(engine, rows, choices, envelope, shown)


def check_length(wish: Wish, context: int) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        most = getattr(wish, name, None)
        if most is not None and most > context:
            raise GenerationError(f"{name} is {most}: it must be at most the context of {context} tokens.")


def read_prompts(prepared: Prepared, wish: TextWish) -> None:
    """Log-probabilities of prompts that are to be repeated, once for all answers to the same one."""
    for i, prompt in zip(range(0, len(prepared.rows), wish.n or 1), wish.prompts(), strict=True):
        ids, control = list(prepared.rows[i].ids), isinstance(prompt, list)
        tokens = prompt_tokens(prepared.engine.model, ids, wish.logprobs, control=control)
        for choice in prepared.choices[i : i + (wish.n or 1)]:
            choice.read = tokens


async def whole(request: Request, prepared: Prepared, call: Call) -> dict[str, Any]:
    said = [prepared.envelope.dialect.choice(choice) for choice in call.choices]
    if prepared.shown is not None:
        with request.app.state.engines.reading():
            for told, row, choice in zip(said, prepared.rows, call.choices, strict=True):
                assert choice.answer is not None
                given = (prepared.engine.model, row, choice.answer, *prepared.shown)
                told["explain"] = await computed(request, explain, *given)
            await computed(request, request.app.state.engines.shelf.settle)  # the model has its network now
    return prepared.envelope.whole(said, call.completion_tokens)


class Spoken(StreamingResponse):
    """A stream that gives back its slots also if it never begins."""

    def __init__(self, call: Call, lines: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self.call = call

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.call.close()


async def spoken(
    call: Call, happened: tuple[Choice, Any], envelope: Envelope, wish: Wish, facts: dict[str, Any]
) -> AsyncIterator[bytes]:
    """The answer as events; what fails on the way is said by the last but one."""
    dialect, none = envelope.dialect, {"usage": None} if wish.usage else {}
    try:
        for choice in call.choices:
            if opening := dialect.opening(choice):
                yield line(envelope.part(opening, **none))
        while True:
            choice, event = happened
            if isinstance(event, Answer):
                yield line(envelope.part(dialect.closing(choice), **none))
            elif event.text or wish.alternatives is not None:
                yield line(envelope.part(dialect.piece(choice, event), **none))
            if not call.open:
                break
            happened = await call.next()
        if wish.usage:
            yield line(envelope.part(None, usage=envelope.usage(call.completion_tokens)))
    except Gone:
        return
    except RegardError as problem:
        yield line({"error": error_object(400, str(problem))})
    except Exception as unforeseen:
        facts["error"] = type(unforeseen).__name__
        yield line({"error": error_object(500, "Something inside went wrong with this request.")})
    finally:
        facts["completion_tokens"] = call.completion_tokens
    yield b"data: [DONE]\n\n"


def line(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode("utf-8", "backslashreplace")
