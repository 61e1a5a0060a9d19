"""`/api`: the page's data interface for models, traces, tours, lessons and worksheets.

Responses are JSON, except for slices of tensors, which are raw numbers. Routes are plain functions, which FastAPI runs in
threads. `regard.explain` is imported on the first trace, so that a server which only generates text does without it.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from regard.errors import RegardError, TaskError
from regard.page.generation import Sessions
from regard.page.json_response import JsonResponse
from regard.page.model_cards import model_card
from regard.page.tensor_slices import parse_index, raw, send_slice
from regard.page.trace_sessions import MAX_CHARACTERS, TraceSession

MAX_EDITS = 200
MAX_TERMS = 100
MAX_SHEETS = 50
MAX_TEXTS = 50  # to embed at once

router = APIRouter(prefix="/api")


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/models")
def models(sessions: Sessions) -> Response:
    cards = []
    for entry in sessions.registry.entries.values():
        try:
            cards.append(model_card(entry))
        except RegardError:  # a damaged model is not listed; a request for it by name says what is wrong
            continue
    return JsonResponse({"models": cards})


@router.get("/model")
def model(sessions: Sessions, name: str) -> Response:
    from regard.page.trace_json import model_json

    return JsonResponse(model_json(name, sessions.registry.entry(name).opened.spec))


# ── traces ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Edits = Annotated[dict[str, Any], Field(max_length=MAX_EDITS)]


class TraceRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    text: str = Field(max_length=MAX_CHARACTERS)
    target: str | None = Field(default=None, max_length=MAX_CHARACTERS)
    generate: dict[str, Any] | None = None
    edits: Edits = {}


class ForkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    edits: Edits = {}


@router.post("/trace")
def trace(sessions: Sessions, body: TraceRequest) -> Response:
    return describe(sessions.run(body.model, body.text, body.target, body.generate, body.edits))


@router.post("/trace/{id}/fork")
def fork(sessions: Sessions, id: str, body: ForkRequest) -> Response:
    with sessions.using(id) as (session,):
        return describe(sessions.fork(session, body.edits))


def describe(session: TraceSession) -> Response:
    """A trace without its numbers: tokens, graph, shapes, generated steps."""
    from regard.page.trace_json import trace_json

    named = {"trace": session.id, "model": session.name, "text": session.text}
    return JsonResponse(named | {"milliseconds": round(session.milliseconds, 1)} | trace_json(session.trace))


@router.get("/trace/{id}/slice")
def slice_of(sessions: Sessions, id: str, node: str, at: str | None = None) -> Response:
    with sessions.using(id) as (session,):
        return send_slice(lambda: session.trace[node], session.trace.shape(node), at)


@router.get("/trace/{id}/why")
def why(
    sessions: Sessions, id: str, node: str, index: str, most: Annotated[int, Query(ge=1, le=MAX_TERMS)] = 12
) -> Response:
    with sessions.using(id) as (session,):
        trace = session.trace
        return JsonResponse(trace.why(node, parse_index(index, trace.shape(node))).to_json(most))


@router.get("/trace/{id}/output")
def output_of(
    sessions: Sessions,
    id: str,
    position: int | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int | None = None,
) -> Response:
    from regard.page.output import SamplingChoice, output

    with sessions.using(id) as (session,):
        return JsonResponse(
            output(session.model, session.trace, position, SamplingChoice(temperature, top_k, top_p, min_p, seed))
        )


@router.get("/trace/{id}/lens")
def lens(
    sessions: Sessions,
    id: str,
    name: str,
    token: int = -1,
    token_id: Annotated[int | None, Query(alias="id")] = None,
    site: str | None = None,
    head: int = 0,
    stack: str | None = None,
    layer: int | None = None,
    node: str | None = None,
) -> Response:
    from regard.page.lenses import LensRequest, apply_lens

    with sessions.using(id) as (session,):
        return JsonResponse(
            apply_lens(session.trace, name, LensRequest(token, token_id, site, head, stack, layer, node))
        )


@router.get("/compare")
def compare(sessions: Sessions, a: str, b: str, position: int | None = None) -> Response:
    """Two traces compared: aligned tokens, the nodes that differ, the outputs that became more or less likely."""
    with sessions.using(a, b) as (first, second):
        found = first.trace.compare(second.trace)
        return JsonResponse(
            {
                "align": found.pairs,
                "target_align": found.target_pairs,
                "nodes": [asdict(each) for each in found.nodes()],
                "output": [asdict(each) for each in found.output(position)] if "probabilities" in found else [],
            }
        )


@router.get("/trace/{id}/export")
def export(sessions: Sessions, id: str) -> Response:
    """The trace as one HTML file that opens from disk."""
    from regard.page.export import page

    headers = {"Content-Disposition": 'attachment; filename="regard.html"'}
    with sessions.using(id) as (session,):
        return Response(
            page(session.trace, name=session.name, text=session.text), media_type="text/html", headers=headers
        )


class EmbedRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    texts: list[Annotated[str, Field(max_length=MAX_CHARACTERS)]] = Field(min_length=1, max_length=MAX_TEXTS)


@router.post("/embed")
def embed(sessions: Sessions, body: EmbedRequest) -> Response:
    """One vector per text, as raw numbers: sentences as points."""
    return raw(sessions.registry.model(body.model).embed(body.texts))


# ── lessons ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/lessons")
def lessons() -> Response:
    from regard.teach.lesson import LESSONS

    return JsonResponse([{"name": name, "title": each.title} for name, each in LESSONS.items()])


@router.get("/lesson")
def lesson_json(sessions: Sessions, name: str) -> Response:
    from regard.teach.lesson import lesson

    return JsonResponse(lesson(name).to_json(sessions.registry.model))


@router.get("/tours")
def tours(sessions: Sessions) -> Response:
    """Tours to choose from: the lessons, and those of files."""
    from regard.teach.lesson import LESSONS

    lessons = [{"name": name, "title": each.title, "kind": "lesson"} for name, each in LESSONS.items()]
    files = [{"name": each.name, "title": each.title, "kind": "file"} for each in sessions.tours.values()]
    return JsonResponse({"tours": [*files, *lessons]})


@router.get("/tour")
def tour_json(sessions: Sessions, name: str) -> Response:
    from regard.teach.lesson import lesson
    from regard.teach.tour import lesson_tour

    found = sessions.tours.get(name) or lesson_tour(name, lesson(name), sessions.registry.model)
    return JsonResponse(found.to_json())


class WorksheetRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    trace: str
    seed: int = 0
    level: str = "all"
    students: int = Field(default=1, ge=1, le=MAX_SHEETS)
    format: Literal["html", "check", "moodle", "gift"] = "html"
    part: Literal["sheets", "key", "both"] = "both"  # of the format html


@router.post("/worksheet")
def worksheet(sessions: Sessions, body: WorksheetRequest) -> Response:
    """A worksheet: attention of this trace, to be computed by hand. The key of the answer says what kind of text it is."""
    from regard.teach.formats import FORMATS

    if body.format != "html" and body.part != "both":
        raise TaskError(f"part is {body.part!r}, but only the format html has parts.")
    with sessions.using(body.trace) as (session,):
        options = body.model_dump(exclude={"trace", "format"} | (set() if body.format == "html" else {"part"}))
        text = FORMATS[body.format](session.trace, model=session.name, **options)
        return JsonResponse({{"moodle": "xml", "gift": "gift"}.get(body.format, "html"): text})
