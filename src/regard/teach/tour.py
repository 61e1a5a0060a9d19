"""Tours: views of the page one after another, with a sentence to each and questions to guess at before the answer is shown.

A tour is data. In: a lesson, or a teacher's file (`tour_file`). Out: JSON that the page walks through (scene/tour.js). A
view is a change of the page's state: model, text, depth, site, head, token, key, matrix, edits, voice, stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.teach.lesson.step import Lesson, Load, Step, open_by_name

View = dict[str, Any]
NO_RUN: View = {
    "model": "toy-gpt",
    "text": "The cat sat",
}  # what the page runs beside a lesson without a model of its own


@dataclass(frozen=True)
class TourStep:
    """A view and what is said of it. Sentences may name facts of the run in braces, which the page fills in."""

    view: View
    bold: str
    plain: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()
    right: str = ""  # the right choice
    answer: str = ""  # what is said instead of `plain` once the answer is shown
    reveal: View | None = None  # what the answer changes of the view
    hides: tuple[str, ...] | None = None  # parts of the scene until then
    spot: tuple[str, ...] = ()  # parts that are spoken of
    figure: dict[str, Any] | None = None  # a worked matrix, in the scene's place
    real: View | None = None  # where a model shows the same

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"view": self.view, "bold": self.bold, "plain": self.plain}
        told |= {"choices": [{"is": each} for each in self.choices] or None, "reveal": self.reveal}
        for name in ("question", "right", "answer", "spot", "figure", "real"):
            if value := getattr(self, name):
                told[name] = value
        return told if self.hides is None else told | {"hides": self.hides}


@dataclass(frozen=True)
class Tour:
    name: str
    title: str
    steps: tuple[TourStep, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "steps": [step.to_json() for step in self.steps]}


def lesson_tour(name: str, lesson: Lesson, load: Load = open_by_name) -> Tour:
    """A lesson as a tour: each of its matrices in the scene's place, with a link to the same in a model."""
    steps = lesson.steps(load)
    usual = next((run_of(step.state) for step in steps if step.state and is_bundled(step.state)), NO_RUN)
    return Tour(name, lesson.title, tuple(lesson_step(lesson, step, usual) for step in steps))


def lesson_step(lesson: Lesson, step: Step, usual: View) -> TourStep:
    bold, plain = first_sentence(step.say)
    told = step.to_json()
    figure = {key: told[key] for key in ("formula", "shape", "value", "by_hand", "columns", "bars")}
    figure["rows"] = list(lesson.names(step))
    view = run_of(step.state) if step.state and is_bundled(step.state) else usual
    if not step.choices:
        return TourStep(view, bold, plain, figure=figure, real=step.state)
    answer = f"{step.answer} {plain}".strip()  # the sentence may tell what is guessed
    return TourStep(view, bold, "", step.question, step.choices, step.right, answer, figure=figure, real=step.state)


def is_bundled(state: Mapping[str, Any]) -> bool:
    """Whether a view's model is there on every machine, and small."""
    return str(state["model"]).startswith("toy-")


def run_of(state: Mapping[str, Any]) -> View:
    """The model and the text of a view."""
    return {key: state[key] for key in ("model", "text")}


def first_sentence(say: str) -> tuple[str, str]:
    """The sentence that is set in bold, and the rest."""
    head, end, rest = min((say.partition(end) for end in (". ", "? ")), key=lambda parts: len(parts[0]))
    return head + end.strip(), rest
