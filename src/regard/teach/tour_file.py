"""A teacher's own tour, read from a YAML file and checked against the models it names.

In: a file. Out: a `Tour`, or a TaskError with one sentence that names the file and the line. Of YAML there are mappings,
lists, texts, numbers and true/false; anchors, aliases and tags are refused, so a small file cannot become large. Whatever a
sentence says is text: the page never reads markup in it.

    title: Who is old?
    model: toy-gpt
    text: The old king and the old
    steps:
      - bold: Which word comes next?
        choices: [king, woman, house]
        right: "{answer}"
        answer: It says “{answer}”, {percent} %.
      - bold: Head {head} looks at “{looks}”.
        view: {depth: 2, site: decoder.2.attention, head: 1, key: 3}
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml  # type: ignore[import-untyped]

from regard.errors import RegardError, TaskError, one_line, quoted
from regard.explain.trace import Trace
from regard.model.wiring import wiring
from regard.safe_open import read_file
from regard.teach.tour import Tour, TourStep, View

MAX_BYTES, MAX_STEPS, MAX_DEPTH, MAX_VALUES = 256 << 10, 100, 8, 10_000
MAX_SENTENCE, MAX_TEXT, MAX_CHOICES = 600, 4000, 6
LARGEST = 1 << 20  # of a whole number: no text is as long

DEPTHS, VOICES = range(5), ("story", "numbers", "mathematics")
STAGES = ("scene", "tokens", "attention", "heads", "mlp", "residual", "steps", "output")
PARTS = ("answer", "guesses", "arcs", "words", "vectors", "streams", "effects", "matrix")
FACTS = (
    *("n", "d", "vocabulary", "parameters", "blocks", "heads", "kv_heads", "d_k", "block", "head", "word", "piece"),
    *("answer", "percent", "guess", "looks", "share", "other", "weight", "was", "before", "after", "fate", "value"),
    "mine",
)  # what a sentence may name in braces: the page's scene/facts.js
FACT = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")

TraceOf = Callable[[str, str, str | None], Trace]


# ── YAML with its lines ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Value:
    """What stands at a line: a text, a number, true or false, nothing, a list, or a mapping."""

    line: int
    of: "str | int | float | bool | list[Value] | dict[str, Value] | None"


class File:
    """A tour's file: its values, and refusals that say where."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def refuse(self, line: int, why: str) -> NoReturn:
        raise TaskError(f"{self.path.name}, line {line}: {why}")

    def read(self) -> Value:
        try:
            text = read_file(self.path, MAX_BYTES, TaskError).decode()
        except UnicodeDecodeError:
            raise TaskError(f"{self.path.name} is not a text in UTF-8.") from None
        return self.parse(text)

    def parse(self, text: str) -> Value:
        """The document, from the parser's events: without recursion, whatever is nested in it."""
        root: list[Value] = []
        open_values: list[
            tuple[Value, list[str]]
        ] = []  # collections not yet closed, with the key that waits for a value
        count = 0

        def put(value: Value) -> None:
            nonlocal count
            count += 1
            if count > MAX_VALUES:
                self.refuse(value.line, f"a tour has at most {MAX_VALUES:,} values.")
            if not open_values:
                return root.append(value)
            holder, waiting = open_values[-1]
            if isinstance(holder.of, list):
                return holder.of.append(value)
            assert isinstance(holder.of, dict)
            if waiting:
                holder.of[waiting.pop()] = value
            elif not isinstance(value.of, str):
                self.refuse(value.line, "a key is a word.")
            elif value.of in holder.of:
                self.refuse(value.line, f"{quoted(value.of)} is given twice.")
            else:
                waiting.append(value.of)
            return None

        try:
            for event in yaml.parse(text, yaml.SafeLoader):
                line = event.start_mark.line + 1
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
                    self.refuse(line, "anchors, aliases and tags of YAML are not read; write the value out.")
                if isinstance(event, yaml.ScalarEvent):
                    put(Value(line, event.value if event.style else plain(event.value)))
                elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
                    if len(open_values) >= MAX_DEPTH:
                        self.refuse(line, "this is nested too deep for a tour.")
                    opened = Value(line, [] if isinstance(event, yaml.SequenceStartEvent) else {})
                    put(opened)
                    open_values.append((opened, []))
                elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                    open_values.pop()
                elif isinstance(event, yaml.DocumentStartEvent) and root:
                    self.refuse(line, "a file holds one tour; a second one begins here.")
        except yaml.YAMLError as problem:
            mark = getattr(problem, "problem_mark", None)
            why = getattr(problem, "problem", None) or "a character that YAML does not allow"
            self.refuse(mark.line + 1 if mark else 1, f"this is not YAML ({one_line(str(why), 120)}).")
        if not root:
            self.refuse(1, "the file is empty; a tour has a title and steps.")
        return root[0]

    # ── values of a kind ────────────────────────────────────────────────────────────────────────────────────────────

    def mapping(self, value: Value, what: str, keys: Collection[str]) -> dict[str, Value]:
        if not isinstance(value.of, dict):
            self.refuse(value.line, f"{what} is a mapping with {', '.join(keys)}.")
        for key, each in value.of.items():
            if key not in keys:
                self.refuse(each.line, f"{quoted(key)} is not a key of {what}; it may have {', '.join(keys)}.")
        return value.of

    def list(self, value: Value, what: str, most: int) -> "list[Value]":
        if not isinstance(value.of, list) or not value.of:
            self.refuse(value.line, f"{what} is a list.")
        if len(value.of) > most:
            self.refuse(value.line, f"{what} has {len(value.of)} entries; at most {most} are shown.")
        return value.of

    def text(self, value: Value, what: str, most: int = MAX_SENTENCE) -> str:
        if isinstance(value.of, bool | list | dict) or value.of is None or not str(value.of).strip():
            self.refuse(value.line, f"{what} is a text.")
        if len(text := str(value.of)) > most:
            self.refuse(value.line, f"{what} has {len(text):,} characters; at most {most:,} are shown.")
        return text

    def sentence(self, value: Value, what: str) -> str:
        """A text whose names in braces are known."""
        text = self.text(value, what)
        for name, _ in FACT.findall(text):
            if name not in FACTS:
                self.refuse(value.line, f"{{{name}}} is nothing a sentence can name; there are {', '.join(FACTS)}.")
        return text

    def whole(self, value: Value, what: str, allowed: "range | None" = None) -> int:
        bounds = allowed if allowed is not None else range(LARGEST)
        if not isinstance(value.of, int) or isinstance(value.of, bool) or value.of not in bounds:
            self.refuse(value.line, f"{what} is a whole number from {bounds[0]} to {bounds[-1]:,}.")
        return value.of

    def real(self, value: Value, what: str, high: float) -> float:
        if not isinstance(value.of, int | float) or isinstance(value.of, bool) or not 0 <= value.of <= high:
            self.refuse(value.line, f"{what} is a number from 0 to {high:g}.")
        return value.of

    def one_of(self, value: Value, what: str, allowed: Collection[str]) -> str:
        if value.of not in allowed:
            self.refuse(value.line, f"{what} is {', '.join(list(allowed)[:-1])} or {list(allowed)[-1]}.")
        return str(value.of)


def plain(text: str) -> "str | int | float | bool | None":
    """A scalar without quotes: a number, true, false or nothing where it is spelt so, else a text."""
    if NUMBER.fullmatch(text) and len(text) < 20:
        return float(text) if set(text) & set(".eE") else int(text)
    return {"true": True, "false": False, "null": None, "~": None, "": None}.get(text, text)


# ── the tour ────────────────────────────────────────────────────────────────────────────────────────────────────────

VIEW: dict[str, Callable[[File, Value], Any]] = {
    "model": lambda file, value: file.text(value, "model", 200),
    "text": lambda file, value: file.text(value, "text", MAX_TEXT),
    "target": lambda file, value: file.text(value, "target", MAX_TEXT),
    "stage": lambda file, value: file.one_of(value, "stage", STAGES),
    "depth": lambda file, value: file.whole(value, "depth", DEPTHS),
    "site": lambda file, value: file.text(value, "site", 200),
    "head": lambda file, value: file.whole(value, "head"),
    "token": lambda file, value: file.whole(value, "token"),
    "key": lambda file, value: file.whole(value, "key"),
    "matrix": lambda file, value: file.text(value, "matrix", 200),
    "node": lambda file, value: file.text(value, "node", 200),
    "index": lambda file, value: [file.whole(each, "an index") for each in file.list(value, "index", 8)],
    "edits": lambda file, value: edits(file, value),
    "mode": lambda file, value: file.one_of(value, "mode", ("a", "b", "delta")),
    "voice": lambda file, value: file.one_of(value, "voice", VOICES),
    "fresh": lambda file, value: file.whole(value, "fresh", range(65)),
    "seed": lambda file, value: file.whole(value, "seed"),
    "temperature": lambda file, value: file.real(value, "temperature", 5),
    "top_k": lambda file, value: file.whole(value, "top_k"),
    "top_p": lambda file, value: file.real(value, "top_p", 1),
    "min_p": lambda file, value: file.real(value, "min_p", 1),
}
RUN: tuple[str, ...] = ("model", "text")
SENTENCES: tuple[str, ...] = ("bold", "plain", "question", "right", "answer")
STEP = ("bold", "plain", "view", "question", "choices", "right", "answer", "reveal", "hides", "spot")


def edits(file: File, value: Value) -> dict[str, Any]:
    """place → verb, or place → {verb: number}."""
    if not isinstance(value.of, dict):
        file.refuse(value.line, "edits is a mapping from places to what is done there.")

    def verb(each: Value) -> Any:
        if not isinstance(each.of, dict):
            return file.text(each, "an edit", 80)
        return {name: file.real(number, "the number of an edit", 1e6) for name, number in each.of.items()}

    return {place: verb(each) for place, each in value.of.items()}


@dataclass(frozen=True)
class Written:
    """A tour as its file says it, with the lines that a check against models names."""

    file: File
    tour: Tour
    lines: tuple[dict[str, int], ...]  # per step: where each key of its view stands; "" the step itself


def read_tour(path: Path) -> Written:
    """The tour of a file; what it says of models is not yet checked (`check_tour`)."""
    file = File(path)
    whole = file.mapping(top := file.read(), "a tour", ("title", "model", "text", "steps"))
    for key in ("title", "steps"):
        if key not in whole:
            file.refuse(top.line, f"the tour has no {key}.")
    usual: View = {key: VIEW[key](file, whole[key]) for key in RUN if key in whole}
    where = {key: whole[key].line for key in usual}
    steps = [step(file, each, usual, where) for each in file.list(whole["steps"], "steps", MAX_STEPS)]
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "tour"
    title = file.text(whole["title"], "title", 120)
    return Written(file, Tour(f"file-{name}", title, tuple(s for s, _ in steps)), tuple(lines for _, lines in steps))


def step(file: File, value: Value, usual: View, where: Mapping[str, int]) -> tuple[TourStep, dict[str, int]]:
    given = file.mapping(value, "a step", STEP)
    if "bold" not in given:
        file.refuse(value.line, "the step has no bold sentence.")
    said = {key: file.sentence(given[key], key) for key in SENTENCES if key in given}
    view, lines = view_of(file, given.get("view"), "view")
    change, changed = view_of(file, given.get("reveal"), "reveal")
    for key in RUN:
        if key not in {**usual, **view}:
            file.refuse(value.line, f"the step has no {key}: give one for the tour, or in its view.")
    choices = [file.text(each, "a choice", 80) for each in parts(file, given, "choices", MAX_CHOICES)]
    hides = [file.one_of(each, "hides", PARTS) for each in parts(file, given, "hides", len(PARTS))]
    spot = [file.one_of(each, "spot", PARTS) for each in parts(file, given, "spot", len(PARTS))]
    if "right" in given and "{" not in said["right"] and said["right"] not in choices:
        file.refuse(given["right"].line, f"{quoted(said['right'])} is right but not among the choices.")
    made = TourStep(
        usual | view,
        said["bold"],
        said.get("plain", ""),
        said.get("question", ""),
        right=said.get("right", ""),
        answer=said.get("answer", ""),
        choices=tuple(choices),
        reveal=change or None,
        hides=tuple(hides) if hides else None,
        spot=tuple(spot),
    )
    sentences = {key: given[key].line for key in said}
    return made, {"": value.line, **where, **lines, **changed, **sentences}


def parts(file: File, given: Mapping[str, Value], key: str, most: int) -> list[Value]:
    return file.list(given[key], key, most) if key in given else []


def view_of(file: File, value: Value | None, what: str) -> tuple[View, dict[str, int]]:
    if value is None:
        return {}, {}
    given = file.mapping(value, what, tuple(VIEW))
    return {key: VIEW[key](file, each) for key, each in given.items()}, {key: each.line for key, each in given.items()}


# ── against the models ──────────────────────────────────────────────────────────────────────────────────────────────


def check_tour(written: Written, models: Collection[str], trace: TraceOf) -> Tour:
    """The tour, after every view was tried: its model, text, site, head, words, numbers and edits exist."""
    runs: dict[tuple[str, str, str | None], Trace] = {}
    for each, lines in zip(written.tour.steps, written.lines, strict=True):
        for view in (each.view, each.view | (each.reveal or {})):
            check = Check(written.file, view, lines)
            check.model(models)
            run = (view["model"], view["text"], view.get("target"))
            if run not in runs:
                runs[run] = check.attempt("text", lambda run=run: trace(*run))  # type: ignore[misc]
            check.places(runs[run])
        check.sentences(runs[run], {key: getattr(each, key) for key in SENTENCES})
    return written.tour


@dataclass(frozen=True)
class Check:
    """One view against one run."""

    file: File
    view: View
    lines: Mapping[str, int]

    def refuse(self, key: str, why: str) -> NoReturn:
        self.file.refuse(self.lines.get(key, self.lines[""]), why)

    def attempt(self, key: str, run: Callable[[], Any]) -> Any:
        """What `run` gives; what it refuses is refused here, with its line."""
        try:
            return run()
        except RegardError as problem:
            self.refuse(key, str(problem))

    def model(self, models: Collection[str]) -> None:
        if self.view["model"] not in models:
            self.refuse("model", f"there is no model {quoted(self.view['model'])} here; there are {', '.join(models)}.")

    def places(self, trace: Trace) -> None:
        view, sites = self.view, {each.site: each for each in trace.graph.sites}
        site = sites.get(view.get("site", ""))
        if "site" in view and site is None:
            self.refuse("site", f"{view['model']} has no site {quoted(view['site'])}; it has {some(sites)}.")
        if view.get("head") and site is not None and view["head"] >= site.heads:
            self.refuse(
                "head", f"{site.site} has {site.heads} heads, 0 to {site.heads - 1}; there is no {view['head']}."
            )
        if "matrix" in view and (site is None or view["matrix"] not in site.steps):
            self.refuse(
                "matrix", f"{quoted(view['matrix'])} is no step of the site; it has {some(site.steps if site else ())}."
            )
        fresh = view.get("fresh", 0)
        asks = (
            trace.target_tokens if trace.target_tokens and (site is None or site.stack == "decoder") else trace.tokens
        )
        keys = trace.tokens if site is not None and site.kind == "cross" else asks
        for key, tokens in (("token", asks), ("key", keys)):
            if view.get(key, 0) >= len(tokens) + fresh:
                self.refuse(key, f"{key} is {view[key]}, but the text has {len(tokens)} tokens, counted from 0.")
        if "node" in view:
            self.attempt("node", lambda: trace.why(view["node"], tuple(view.get("index", ()))))
        if view.get("edits"):
            self.attempt("edits", lambda: trace.edit(view["edits"]))

    def sentences(self, trace: Trace, said: Mapping[str, str]) -> None:
        blocks = [block.place for block in wiring(trace.graph).blocks]
        for key, sentence in said.items():
            for name, of in FACT.findall(sentence):
                if name == "guess" and of not in blocks:
                    self.refuse(key, f"{{guess:{of}}} names no block; there are {some(blocks)}.")
                if name == "piece" and not 1 <= int(of if of.isdecimal() else 0) <= len(trace.tokens):
                    self.refuse(
                        key, f"{{piece:{of}}} names no piece of the text; it has {len(trace.tokens)}, counted from 1."
                    )


def some(names: Collection[str], most: int = 8) -> str:
    """Names to choose from, the first of them."""
    listed = ", ".join(list(names)[:most])
    return listed + (", …" if len(names) > most else "") if names else "none"
