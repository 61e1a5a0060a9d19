"""`/api`: what the page asks about models and runs.

Everything is JSON but slices, which are raw numbers. Routes are plain functions, which FastAPI runs in threads; what they
answer is written down as it comes from `regard.explain`. That room, and PyTorch with it, is entered when somebody looks, so
that a server which only writes does without.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from regard.errors import RegardError
from regard.serve.answer import Json
from regard.serve.desk import MOST_CHARACTERS, Look
from regard.serve.live import TheDesk
from regard.serve.slices import parse_index, send_slice

MOST_EDITS = 200
MOST_TERMS = 100
MOST_SHEETS = 50

router = APIRouter(prefix="/api")


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/models")
def models(desk: TheDesk) -> Response:
    cards = []
    for offer in desk.shelf.offers.values():
        try:
            cards.append(offer.card())
        except RegardError:  # a damaged model is not offered; asking for it by name says what is wrong with it
            continue
    return Json({"models": cards})


@router.get("/model")
def model(desk: TheDesk, name: str) -> Response:
    from regard.explain.told import facts

    return Json(facts(name, desk.shelf.offer(name).opened.spec))


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

Edits = Annotated[dict[str, Any], Field(max_length=MOST_EDITS)]


class Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str
    text: str = Field(max_length=MOST_CHARACTERS)
    target: str | None = Field(default=None, max_length=MOST_CHARACTERS)
    generate: dict[str, Any] | None = None
    edits: Edits = {}


class Fork(BaseModel):
    model_config = ConfigDict(extra="forbid")

    edits: Edits = {}


@router.post("/trace")
def trace(desk: TheDesk, wanted: Wanted) -> Response:
    return answer(desk.look(wanted.model, wanted.text, wanted.target, wanted.generate, wanted.edits))


@router.post("/trace/{id}/fork")
def fork(desk: TheDesk, id: str, wanted: Fork) -> Response:
    with desk.looking(id) as (look,):
        return answer(desk.fork(look, wanted.edits))


def answer(look: Look) -> Response:
    """All that can be said of a run without any of its numbers."""
    from regard.explain.told import told

    named = {"trace": look.id, "model": look.name, "text": look.text, "milliseconds": round(look.milliseconds, 1)}
    return Json(named | told(look.trace))


@router.get("/trace/{id}/slice")
def slice_of(desk: TheDesk, id: str, node: str, at: str | None = None) -> Response:
    with desk.looking(id) as (look,):
        return send_slice(lambda: look.trace[node], look.trace.shape(node), at)


@router.get("/trace/{id}/why")
def why(
    desk: TheDesk, id: str, node: str, index: str, most: Annotated[int, Query(ge=1, le=MOST_TERMS)] = 12
) -> Response:
    with desk.looking(id) as (look,):
        run = look.trace
        return Json(run.why(node, parse_index(index, run.shape(node))).to_json(most))


@router.get("/trace/{id}/output")
def output_of(
    desk: TheDesk,
    id: str,
    position: int | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int | None = None,
) -> Response:
    from regard.serve.output import Choice, output

    with desk.looking(id) as (look,):
        return Json(output(look.model, look.trace, position, Choice(temperature, top_k, top_p, min_p, seed)))


@router.get("/trace/{id}/lens")
def lens(
    desk: TheDesk,
    id: str,
    name: str,
    token: int = -1,
    word: Annotated[int | None, Query(alias="id")] = None,
    site: str | None = None,
    head: int = 0,
    stack: str | None = None,
    layer: int | None = None,
    node: str | None = None,
) -> Response:
    from regard.serve.lenses import Asked, looked_through

    with desk.looking(id) as (look,):
        return Json(looked_through(look.trace, name, Asked(token, word, site, head, stack, layer, node)))


@router.get("/compare")
def compare(desk: TheDesk, a: str, b: str, position: int | None = None) -> Response:
    """Two runs: which tokens stand for each other, which nodes moved, which answers became likelier."""
    with desk.looking(a, b) as (first, second):
        found = first.trace.compare(second.trace)
        return Json(
            {
                "align": found.pairs,
                "target_align": found.target_pairs,
                "nodes": [asdict(each) for each in found.nodes()],
                "output": [asdict(each) for each in found.output(position)] if "probabilities" in found else [],
            }
        )


@router.get("/trace/{id}/export")
def export(desk: TheDesk, id: str) -> Response:
    """The run in one file that opens from disk."""
    from regard.explain.export import page

    headers = {"Content-Disposition": 'attachment; filename="regard.html"'}
    with desk.looking(id) as (look,):
        return Response(page(look.trace, name=look.name, text=look.text), media_type="text/html", headers=headers)


# ── lessons ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/lessons")
def lessons() -> Response:
    from regard.explain.lesson import LESSONS

    return Json([{"name": name, "title": each.title} for name, each in LESSONS.items()])


@router.get("/lesson")
def one_lesson(desk: TheDesk, name: str) -> Response:
    from regard.explain.lesson import lesson

    return Json(lesson(name).to_json(desk.shelf.model))


class Sheets(BaseModel):
    model_config = ConfigDict(extra="forbid")

    trace: str
    seed: int = 0
    level: str = "all"
    students: int = Field(default=1, ge=1, le=MOST_SHEETS)
    part: Literal["sheets", "key", "both"] = "both"


@router.post("/worksheet")
def worksheet(desk: TheDesk, sheets: Sheets) -> Response:
    """Attention of this run to be computed by hand, as a page to print."""
    from regard.explain.handout import handout

    with desk.looking(sheets.trace) as (look,):
        wish = sheets.model_dump(exclude={"trace"})
        return Json({"html": handout(look.trace, model=look.name, **wish)})
