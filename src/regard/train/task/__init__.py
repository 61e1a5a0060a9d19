"""What can be trained. A task says how a row becomes ids, what a batch's loss is, and how good the result is.

Adding one is a file here and a line below.
"""

from importlib import import_module

from regard.errors import NotFound
from regard.train.task.base import Task

TASKS = {
    "lm": "LanguageModel",
    "mlm": "MaskedLanguageModel",
    "classify": "Classify",
    "tag": "Tag",
    "translate": "Translate",
    "chat": "Chat",
}


def task_named(name: str) -> type[Task]:
    if name not in TASKS:
        raise NotFound(f"There is no task {name!r}; there are {', '.join(TASKS)}.")
    task: type[Task] = getattr(import_module(f"regard.train.task.{name}"), TASKS[name])
    return task
