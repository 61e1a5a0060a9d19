"""`python tests/soak/try_models.py BASES WORK`: for each seed on standard input, a damaged model is opened and used.

A line of JSON for each: the seed, what was damaged, and what came of it: "used", "refused" with its sentence, or "failed"
with what must not happen: another exception than a RegardError, much time, much memory. A crash or a hang is noticed by
who wrote the seed. In a process of its own, because a damaged file may end it.
"""

import json
import random
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from mutations import damage  # type: ignore[import-not-found] # which stands beside this script

import regard
from hostile import cheap
from regard.errors import RegardError

TEXTS = ("The old king sees a tree.", "", "a" * 300, "\0\x1b\U0010ffff e\u0301 \u200d🙂 [SEP] <|end|>", "the cat " * 40)
CPU_SECONDS = 20
MEGABYTES = 700


def use(where: Path) -> None:
    """Whatever a person does with a model, with each kind of head."""
    model = regard.load(where)
    repr(model)
    for text in TEXTS:
        try:
            ask(model, text)
        except RegardError:  # this text; the next may do
            continue
    model.save(where.parent / "saved")


def ask(model: regard.Model, text: str) -> None:
    kind = model.spec.head.kind
    ids = model.tokenizer.encode(text)
    model.tokenizer.decode(ids)
    if kind == "lm" and model.spec.kind == "decoder":
        model.generate(text, max_new_tokens=3)
        model.score(text)
    elif kind == "lm":
        model.translate([text], num_beams=2, max_new_tokens=3)
    elif kind == "classify":
        model.classify([text])
    elif kind == "tag":
        model.tag([text])
    elif kind == "mlm":
        model.fill(f"{text} [MASK]")
    if model.spec.kind != "encoder-decoder":
        model.embed([text])
    trace = model.trace(text)
    trace[trace.nodes()[-1]]


def attempt(seed: int, bases: Path, work: Path) -> dict[str, Any]:
    drawn = random.Random(seed)
    base = drawn.choice(sorted(bases.iterdir()))
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work / "model")
    what = f"{base.name}: {damage(work / 'model', drawn)}"
    files = list((work / "model").iterdir())
    where = files[0] if [file.suffix for file in files] == [".gguf"] else work / "model"
    said, outcome = "", "used"
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # of the processor's time; SIGPROF ends the process
    try:
        with cheap(seconds=CPU_SECONDS, megabytes=MEGABYTES):
            try:
                use(where)
            except RegardError as refused:
                outcome, said = "refused", str(refused)
        if "\n" in said or len(said) > 2000:
            outcome = "failed"
    except Exception:
        outcome, said = "failed", traceback.format_exc()[-3000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"seed": seed, "damage": what, "outcome": outcome, "said": said}


if __name__ == "__main__":
    torch.set_num_threads(1)
    bases, work = map(Path, sys.argv[1:])
    for line in sys.stdin:
        print(json.dumps(attempt(int(line), bases, work)), flush=True)
