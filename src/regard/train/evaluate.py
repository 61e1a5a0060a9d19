"""Evaluation of a model on data files, without training: loss, perplexity, accuracy, BLEU, … by its task."""

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, TaskError, quoted
from regard.model.build import Network
from regard.store.open_model import Opened
from regard.text.tokenizer import Tokenizer
from regard.train.data import Blocks, Rows
from regard.train.data_order import Windows
from regard.train.dataset import ProgressCallback, prepare
from regard.train.encoding import ENCODINGS
from regard.train.preprocess import PackedTokenizer
from regard.train.read import find_sources
from regard.train.settings import settings_from
from regard.train.task import task_named
from regard.train.task.base import GenerateTargets
from regard.train.training_run import layout_of

log = logging.getLogger("regard")

TASK_OF_HEAD = {"mlm": "mlm", "classify": "classify", "tag": "tag"}


def task_of(opened: Opened, asked: str | None = None) -> str:
    """The task to evaluate a model on, by its head and kind. `asked`, if given, must be that one (or chat, for a language
    model)."""
    own = own_task(opened)
    if asked is not None:
        task_named(asked)
        if asked not in (own, "chat" if own == "lm" else own):
            raise TaskError(f"{opened.path} is a model for {own}, so it cannot be evaluated as one for {asked}.")
    return asked or own


def own_task(opened: Opened) -> str:
    head, kind = opened.spec.head.kind, opened.spec.kind
    if head == "lm":
        return "translate" if kind == "encoder-decoder" else "lm"
    if head not in TASK_OF_HEAD:
        raise TaskError(f"{opened.path} has no head whose predictions could be evaluated.")
    return TASK_OF_HEAD[head]


@torch.no_grad()
def evaluate(
    net: Network,
    opened: Opened,
    tokenizer: Tokenizer,
    data: Sequence[str],
    *,
    task: str | None = None,
    most: int | None = None,
    given: dict[str, Any] | None = None,
    progress: ProgressCallback = lambda done, total: None,
    generate: GenerateTargets | None = None,
) -> dict[str, float]:
    """The metrics on the examples in the files (at most `most` of them)."""
    name = task_of(opened, task)
    if most is not None and (type(most) is not int or most < 1):
        raise ConfigError(f"most is {quoted(most)}; it must be a whole number of at least 1.")
    block = min(opened.spec.context, opened.spec.source_context, 512 if name == "lm" else 1024)
    settings = settings_from(name, {}, None, {"data": data, "block_size": block, "batch_size": 16, **(given or {})})
    labels = opened.spec.head.labels
    judge = task_named(name)(settings, tokenizer, labels)
    judge.generate, judge.max_generated, layout = generate, most or sys.maxsize, layout_of(settings)
    preprocessor: Any = ENCODINGS[name](PackedTokenizer(tokenizer), block, labels)
    with tempfile.TemporaryDirectory() as folder:
        columns = prepare(Path(folder) / "data", find_sources(data, layout), layout, preprocessor, progress=progress)
        if columns.left_out():
            log.warning("left out of the evaluation: %s", columns.left_out())
        examples: Rows | Blocks
        if name == "lm":
            windows = Windows(len(columns.stream("ids")), block)
            examples = Blocks(columns, 0, len(windows), block)
            if windows.dropped:
                log.warning("the last %d tokens are too few for a block of %d", windows.dropped, block)
        else:
            examples = Rows(columns, 0, len(columns), 0)
        generator = torch.Generator().manual_seed(0)
        n = min(examples.n, most or examples.n)
        chunks = [range(i, min(i + 16, n)) for i in range(0, n, 16)]
        batches = [judge.collate([examples.example(j) for j in chunk], generator) for chunk in chunks]
        net.eval()
        return {"examples": float(n), **judge.evaluate(net, batches)}
