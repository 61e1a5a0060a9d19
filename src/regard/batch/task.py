"""The tasks of a batch run: a model and a task turn a batch of rows into lines of JSON.

In: a `BatchTask`, which is all that the results depend on besides the rows, and batches of rows. Out: `BatchResult`s,
one line per row. A row that the model cannot answer gets a line with the error, and the others of its batch are answered as
if it did not exist.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.batch.input import ROW_BATCH_TOKENS, InputRow, RowBatch
from regard.errors import GenerationError, RegardError, TaskError, TokenizerError
from regard.safe_open import open_file

if TYPE_CHECKING:
    from regard.api import Model
    from regard.api.inference import Tagged
    from regard.store.open_model import Opened

Answer = dict[str, Any]
BATCH_TOKENS = 4096  # of prompts and generated text, padding included
ANSWER, TRANSLATION = 256, 64  # tokens that are typically generated, unless max_new_tokens is less
HEADS = {"classify": "classify", "tag": "tag", "generate": "lm", "translate": "lm"}
MODEL_FILES = ("*.json", "*.safetensors", "*.gguf", "*.txt", "*.model", "*.jinja", "*/config.json")


@dataclass(frozen=True)
class BatchTask:
    """task: one of `TASKS`. settings: of generation, for tasks that generate; else whether to `truncate`. echo: repeat the
    text next to its answer. row_batch_tokens: about how many tokens are answered, and then written to disk, together."""

    task: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    device: str = "auto"
    echo: bool = False
    row_batch_tokens: int = ROW_BATCH_TOKENS

    @property
    def new_tokens(self) -> int:
        """An estimate of the tokens generated for a row."""
        usual = {"generate": ANSWER, "translate": TRANSLATION}.get(self.task, 0)
        return min(usual, int(self.settings.get("max_new_tokens", usual)))

    def identity(self, opened: "Opened") -> dict[str, Any]:
        """What must be equal to resume a run: everything but the path of the model and the device. The keys are those of
        OUT.run."""
        options = {"task": self.task, "dtype": self.dtype, "echo": self.echo, "parcel": self.row_batch_tokens}
        return {**options, "settings": dict(self.settings), "model": files_sha256(opened.path)}


@dataclass(frozen=True)
class BatchResult:
    """The answers to one batch of rows, as lines of JSON."""

    number: int  # of the batch of rows
    lines: str  # each ends with a newline
    n_rows: int
    n_errors: int
    n_cut: int  # answers to a truncated text


def files_sha256(path: Path) -> str:
    """One hash over all files of a model."""
    files = [path] if path.is_file() else sorted({f for pattern in MODEL_FILES for f in path.glob(pattern)})
    digest = hashlib.sha256()
    for file in files:
        with open_file(file) as content:
            digest.update(f"{file.relative_to(path.parent if path.is_file() else path)}\n".encode())
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def check(task: BatchTask, opened: "Opened") -> None:
    """Refuse a task that the model cannot do or settings that are invalid, before any weight is loaded."""
    from regard.engine.settings import Settings

    if task.task not in TASKS:
        raise TaskError(f"The task is {task.task!r}; it can be {', '.join(TASKS)}.")
    if opened.tokenizer is None:
        raise TokenizerError(f"{opened.path} has no tokenizer (tokenizer.json), so it cannot read text.")
    spec, needed = opened.spec, HEADS.get(task.task)
    if needed is not None and spec.head.kind != needed:
        raise TaskError(f"{task.model} cannot {task.task}: its head is {spec.head.kind!r}, and {needed!r} is needed.")
    if task.task == "translate" and spec.kind != "encoder-decoder":
        raise TaskError(f"{task.model} cannot translate: it is no encoder-decoder (BART, Marian, …).")
    if task.task in ("generate", "translate"):
        Settings.from_generation_config(opened.generation).replace(**task.settings).check(spec.n_vocab, spec.context)


class Worker:
    """A task with its loaded model."""

    def __init__(self, task: BatchTask, model: "Model") -> None:
        self.task, self.model = task, model

    def answer(self, batch: RowBatch) -> BatchResult:
        readable = [row for row in batch.rows if row.error is None]
        found = iter(TASKS[self.task.task](self.model, [row.text for row in readable], self.task.settings))
        answers = [{"error": row.error} if row.error is not None else next(found) for row in batch.rows]
        lines = "".join(self.line(row, a) for row, a in zip(batch.rows, answers, strict=True))
        n_errors, n_cut = (sum(mark in answer for answer in answers) for mark in ("error", "truncated"))
        return BatchResult(batch.number, lines, len(answers), n_errors, n_cut)

    def line(self, row: InputRow, answer: Answer) -> str:
        known: Answer = {"file": row.file, "line": row.line}
        if self.task.echo and row.error is None:
            known["input"] = row.text
        return json.dumps({**known, **answer}, ensure_ascii=False, allow_nan=False) + "\n"


# ── tasks: texts → one answer each ──────────────────────────────────────────────────────────────────────────────────


def isolate_errors(run: Callable[[list[str]], list[Answer]], texts: list[str]) -> list[Answer]:
    """Run on all texts; if one of them is refused, on halves, until the text with the error is alone."""
    if not texts:
        return []
    try:
        return run(texts)
    except TaskError:
        raise  # the same for every row
    except RegardError as problem:
        if len(texts) == 1:
            return [{"error": str(problem)}]
    middle = len(texts) // 2
    return isolate_errors(run, texts[:middle]) + isolate_errors(run, texts[middle:])


def finite(numbers: Sequence[float]) -> list[float]:
    """The numbers in nine digits, which identify a float32. NaN and infinity, which JSON cannot represent, are errors."""
    if any(x != x or abs(x) == float("inf") for x in numbers):
        raise GenerationError("The model's numbers for this row are not finite, so there is no answer.")
    return [float(f"{x:.9g}") for x in numbers]


def mark_truncated(run: Callable[[list[str]], list[Answer]], texts: list[str]) -> list[Answer]:
    """Run on all texts; the answers to truncated ones are marked."""
    from regard.api.truncation import recording_truncation

    def marked(some: list[str]) -> list[Answer]:
        with recording_truncation() as truncated:
            answers = run(some)
        for i in truncated:
            answers[i]["truncated"] = True
        return answers

    return isolate_errors(marked, texts)


def embed(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    return mark_truncated(
        lambda some: [{"embedding": finite(x)} for x in model.embed(some, **settings).tolist()], texts
    )


def classify(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    def run(some: list[str]) -> list[Answer]:
        found = model.classify(some, **settings)
        return [{"labels": dict(zip(labels, finite([*labels.values()]), strict=True))} for labels in found]

    return mark_truncated(run, texts)


def tag(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    def run(some: list[str]) -> list[Answer]:
        return [{"words": [as_answer(word) for word in words]} for words in model.tag(some, **settings)]

    def as_answer(word: "Tagged") -> Answer:
        return {**dataclasses.asdict(word), "probability": finite([word.probability])[0]}

    return mark_truncated(run, texts)


def generate(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    def run(some: list[str]) -> list[Answer]:
        return [{"text": a.text, "finished": a.finished} for (a,) in model.answers(some, **settings)]

    return by_length(model, texts, settings.get("max_new_tokens", ANSWER), run)


def translate(model: "Model", texts: list[str], settings: Mapping[str, Any]) -> list[Answer]:
    """Blank texts are not translated and give a blank answer."""

    def run(some: list[str]) -> list[Answer]:
        return [{"translation": text} for text in model.translate(some, **settings)]

    sources = [text for text in texts if text.strip()]
    found = iter(by_length(model, sources, min(TRANSLATION, settings.get("max_new_tokens", TRANSLATION)), run))
    return [next(found) if text.strip() else {"translation": ""} for text in texts]


def by_length(
    model: "Model", texts: list[str], new_tokens: int, run: Callable[[list[str]], list[Answer]]
) -> list[Answer]:
    """Run on batches of texts of similar length, counting `new_tokens` for each; the answers are in the texts' order."""
    from regard.engine.encode import batches

    try:
        lengths = [len(ids) + new_tokens for ids in model.tokenizer.encode_batch(texts)]
    except TokenizerError:  # of one text; running them finds out which
        lengths = [len(text) + new_tokens for text in texts]
    answers: list[Answer] = [{}] * len(texts)
    for which in batches(lengths, BATCH_TOKENS):
        for i, answer in zip(which, isolate_errors(run, [texts[i] for i in which]), strict=True):
            answers[i] = answer
    return answers


TASKS: dict[str, Callable[["Model", list[str], Mapping[str, Any]], list[Answer]]] = {
    "embed": embed,
    "generate": generate,
    "classify": classify,
    "translate": translate,
    "tag": tag,
}
