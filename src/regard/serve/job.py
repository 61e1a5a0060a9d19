"""What an offline run does to its rows: a model and a task turn a parcel of rows into lines of JSON.

In: a `Job`, which is all that the answers depend on besides the rows, and parcels. Out: `Answered` parcels, a line per
row. A row that the model cannot answer gets a line that says why, and the others of its batch are answered as if it were
not there.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import GenerationError, RegardError, TaskError, TokenizerError
from regard.modelfile import open_file
from regard.serve.rows import PARCEL_TOKENS, Parcel, Row

if TYPE_CHECKING:
    from regard.api import Model
    from regard.api.read import Tagged
    from regard.store.open import Opened

Answer = dict[str, Any]
BATCH_TOKENS = 4096  # of prompts and what is written for them, padding counted
ANSWER, TRANSLATION = 256, 64  # tokens, about, unless told to be fewer
HEADS = {"classify": "classify", "tag": "tag", "generate": "lm", "translate": "lm"}
MODEL_FILES = ("*.json", "*.safetensors", "*.gguf", "*.txt", "*.model", "*.jinja", "*/config.json")


@dataclass(frozen=True)
class Job:
    """task: one of `TASKS`. settings: of generation, where text is written; else whether to `truncate`. echo: repeat the
    text beside its answer. parcel: tokens, about, that are answered together and then kept."""

    task: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    device: str = "auto"
    echo: bool = False
    parcel: int = PARCEL_TOKENS

    @property
    def written(self) -> int:
        """The tokens that are written for a row, about."""
        usual = {"generate": ANSWER, "translate": TRANSLATION}.get(self.task, 0)
        return min(usual, int(self.settings.get("max_new_tokens", usual)))

    def identity(self, opened: "Opened") -> dict[str, Any]:
        """What must be the same for a resumed run: all but where the model lies and what it is run on."""
        said = {name: getattr(self, name) for name in ("task", "dtype", "echo", "parcel")}
        return {**said, "settings": dict(self.settings), "model": fingerprint(opened.path)}


@dataclass(frozen=True)
class Answered:
    number: int  # of the parcel
    lines: str  # each ends in a line break
    n_rows: int
    n_errors: int
    n_cut: int  # of the answers, those to a text that was cut


def fingerprint(path: Path) -> str:
    """One hash of the files a model is made of."""
    files = [path] if path.is_file() else sorted({f for pattern in MODEL_FILES for f in path.glob(pattern)})
    digest = hashlib.sha256()
    for file in files:
        with open_file(file) as content:
            digest.update(f"{file.relative_to(path.parent if path.is_file() else path)}\n".encode())
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def check(job: Job, opened: "Opened") -> None:
    """Refuse what no row could make right, before any weight is loaded."""
    from regard.engine.settings import Settings

    if job.task not in TASKS:
        raise TaskError(f"The task is {job.task!r}; it can be {', '.join(TASKS)}.")
    if opened.tokenizer is None:
        raise TokenizerError(f"{opened.path} has no tokenizer (tokenizer.json), so it cannot read text.")
    spec, needed = opened.spec, HEADS.get(job.task)
    if needed is not None and spec.head.kind != needed:
        raise TaskError(f"{job.model} cannot {job.task}: its head is {spec.head.kind!r}, and {needed!r} is needed.")
    if job.task == "translate" and spec.kind != "encoder-decoder":
        raise TaskError(f"{job.model} cannot translate: it is no encoder-decoder (BART, Marian, …).")
    if job.task in ("generate", "translate"):
        Settings.from_generation_config(opened.generation).replace(**job.settings).check(spec.n_vocab, spec.context)


class Worker:
    """A job with its model in memory."""

    def __init__(self, job: Job, model: "Model") -> None:
        self.job, self.model = job, model

    def answer(self, parcel: Parcel) -> Answered:
        readable = [row for row in parcel.rows if row.error is None]
        found = iter(TASKS[self.job.task](self.model, [row.text for row in readable], self.job.settings))
        answers = [{"error": row.error} if row.error is not None else next(found) for row in parcel.rows]
        lines = "".join(self.line(row, a) for row, a in zip(parcel.rows, answers, strict=True))
        n_errors, n_cut = (sum(mark in answer for answer in answers) for mark in ("error", "truncated"))
        return Answered(parcel.number, lines, len(answers), n_errors, n_cut)

    def line(self, row: Row, answer: Answer) -> str:
        known: Answer = {"file": row.file, "line": row.line}
        if self.job.echo and row.error is None:
            known["input"] = row.text
        return json.dumps({**known, **answer}, ensure_ascii=False, allow_nan=False) + "\n"


# ── tasks: texts in, an answer for each ─────────────────────────────────────────────────────────────────────────────


def one_by_one(run: Callable[[list[str]], list[Answer]], texts: list[str]) -> list[Answer]:
    """`run` on all; if a text among them is refused, on halves, until it stands alone with the reason."""
    if not texts:
        return []
    try:
        return run(texts)
    except TaskError:
        raise  # not this row's fault
    except RegardError as problem:
        if len(texts) == 1:
            return [{"error": str(problem)}]
    middle = len(texts) // 2
    return one_by_one(run, texts[:middle]) + one_by_one(run, texts[middle:])


def finite(numbers: Sequence[float]) -> list[float]:
    """Nine digits say a float32 exactly. What is no number is no answer, and JSON could not hold it."""
    if any(x != x or abs(x) == float("inf") for x in numbers):
        raise GenerationError("The model's numbers for this row are not finite, so there is no answer.")
    return [float(f"{x:.9g}") for x in numbers]


def whole(run: Callable[[list[str]], list[Answer]], texts: list[str]) -> list[Answer]:
    """`run` on texts that are read whole; the answer to one that was cut says so."""
    from regard.api.fit import noting_cuts

    def marked(some: list[str]) -> list[Answer]:
        with noting_cuts() as cut:
            answers = run(some)
        for i in cut:
            answers[i]["truncated"] = True
        return answers

    return one_by_one(marked, texts)


def embed(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    return whole(lambda some: [{"embedding": finite(x)} for x in model.embed(some, **settings).float().tolist()], texts)


def classify(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    def run(some: list[str]) -> list[Answer]:
        found = model.classify(some, **settings)
        return [{"labels": dict(zip(labels, finite([*labels.values()]), strict=True))} for labels in found]

    return whole(run, texts)


def tag(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    def run(some: list[str]) -> list[Answer]:
        return [{"words": [sure(word) for word in words]} for words in model.tag(some, **settings)]

    def sure(word: "Tagged") -> Answer:
        return {**dataclasses.asdict(word), "probability": finite([word.probability])[0]}

    return whole(run, texts)


def generate(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    def run(some: list[str]) -> list[Answer]:
        return [{"text": a.text, "finished": a.finished} for (a,) in model.answers(some, **settings)]

    return by_length(model, texts, settings.get("max_new_tokens", ANSWER), run)


def translate(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    """A blank text stays blank."""

    def run(some: list[str]) -> list[Answer]:
        return [{"translation": text} for text in model.translate(some, **settings)]

    written = [text for text in texts if text.strip()]
    found = iter(by_length(model, written, min(TRANSLATION, settings.get("max_new_tokens", TRANSLATION)), run))
    return [next(found) if text.strip() else {"translation": ""} for text in texts]


def by_length(model: "Model", texts: list[str], room: int, run: Callable[[list[str]], list[Answer]]) -> list[Answer]:
    """`run` on batches of texts of like length, `room` for what is written counted; the answers in the texts' order."""
    from regard.engine.encode import batches

    try:
        lengths = [len(ids) + room for ids in model.tokenizer.encode_batch(texts)]
    except TokenizerError:  # of one text; which one it is comes out when they are run
        lengths = [len(text) + room for text in texts]
    answers: list[Answer] = [{}] * len(texts)
    for which in batches(lengths, BATCH_TOKENS):
        for i, answer in zip(which, one_by_one(run, [texts[i] for i in which]), strict=True):
            answers[i] = answer
    return answers


TASKS: dict[str, Callable[["Model", list[str], Mapping[str, Any]], list[Answer]]] = {
    "embed": embed,
    "generate": generate,
    "classify": classify,
    "translate": translate,
    "tag": tag,
}
