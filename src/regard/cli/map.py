"""`regard map`: a task over files of any length."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.say import (
    Device,
    Dtype,
    MaxNewTokens,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    check_writable,
    generation_settings,
    load_model,
    progress,
    readable_path,
    remark,
    show_warnings,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.serve.job import Job
    from regard.serve.offline import Engine

ROWS, CLUSTER = "The rows", "Many machines"
DOING = {
    "embed": "Embedding",
    "generate": "Writing",
    "classify": "Classifying",
    "translate": "Translating",
    "tag": "Tagging",
}


def command(
    task: Annotated[str, typer.Argument(help="embed, generate, classify, translate or tag.")],
    model: Annotated[str, typer.Option(help="A name, a directory, a .gguf file, or a name on the hub.")],
    files: Annotated[list[str], typer.Option("--in", help="Files or globs; may be given several times.")],
    out: Annotated[Path, typer.Option(help="Where the answers go: JSON, a line per row.", metavar="FILE")],
    field: Annotated[
        str | None, typer.Option(help="The text in JSONL, CSV and TSV; else text.", rich_help_panel=ROWS)
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="text, jsonl, csv or tsv, if the name does not say.", rich_help_panel=ROWS),
    ] = None,
    echo: Annotated[
        bool, typer.Option("--echo", help="Repeat each text beside its answer.", rich_help_panel=ROWS)
    ] = False,
    truncate: Annotated[
        bool,
        typer.Option("--truncate", help="Cut texts that are too long for the model, instead.", rich_help_panel=ROWS),
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, dropping what a killed run left.")] = False,
    max_new_tokens: MaxNewTokens = None,
    num_beams: Annotated[int | None, typer.Option(help="Beams; translate: else 4.", metavar="N")] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    stop: Stop = None,
    seed: Seed = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="A Ray cluster's address; auto: this machine's; local: a new one.",
            metavar="ADDRESS",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Models at work; else as many as fit.", metavar="N", rich_help_panel=CLUSTER)
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(help="Cores for each of them; else 1.", metavar="N", rich_help_panel=CLUSTER)
    ] = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Answer every row of large files, in order. Each answer is a line of JSON; that of a row which cannot be answered
    says why in its "error". A killed run goes on where it stopped when the same command is given again.

    regard map embed --model minilm --in sentences.txt --out vectors.jsonl
    regard map classify --model DIR --in '*.csv' --field review --out o.jsonl
    regard map generate --model smollm2 --in prompts.jsonl --out answers.jsonl
    regard map embed --model minilm --in 'part/*.jsonl' --out v.jsonl --ray auto
    """
    if task not in DOING:
        raise RegardError(f"The task is {task!r}; it can be {', '.join(DOING)}.")
    given = {
        "max_new_tokens": max_new_tokens,
        "num_beams": num_beams,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "stop": stop,
        "seed": seed,
    }
    settings = settings_for(task, given, truncate)
    check_writable(out)
    show_warnings()

    from regard.serve.job import Job, check
    from regard.serve.offline import check_free, run
    from regard.serve.rows import survey
    from regard.store.open import open_model

    check_free(out)
    job = Job(task, model, settings, dtype, device, echo)
    opened = open_model(model)
    check(job, opened)
    engine = engine_for(job, ray, workers, cpus)
    with progress("Reading", "bytes") as tell:
        rows = survey(files, field, format, tell)
    try:
        identity, bar = job.identity(opened), partial(progress, DOING[task], "rows")
        reached = run(job, identity, rows, out, engine, restart=restart, progress=bar)
    except KeyboardInterrupt:
        remark(f"Stopped; the same command goes on with {readable_path(out.absolute())}.")
        raise
    wrong = f"; errors in place of answers: {reached.errors:,}" if reached.errors else ""
    cut = f"; texts that were too long and cut: {reached.cut:,}" if reached.cut else ""
    remark(f"{readable_path(out.absolute())} holds {reached.rows:,} rows{wrong}{cut}.")


def settings_for(task: str, given: dict[str, Any], truncate: bool) -> dict[str, Any]:
    """What the person set. A run is repeatable: without a seed it is 0, not a fresh one."""
    settings = generation_settings(**given)
    if task not in ("generate", "translate"):
        if settings:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in settings)
            raise RegardError(f"{names}: {task} writes no text, so there is nothing to set.")
        return {"truncate": True} if truncate else {}
    if truncate:
        raise RegardError(f"--truncate: {task} reads its texts whole; only what embed, classify and tag read is cut.")
    beams = {"num_beams": 4} if task == "translate" else {}
    return {"seed": 0, **beams, **settings}


def engine_for(job: "Job", ray: str | None, workers: int | None, cpus: int | None) -> Any:
    """Where the rows are answered, made when it is known that there are any left."""
    counts = [n for n in (workers, cpus) if n is not None]
    if ray is None and counts:
        raise RegardError("--workers and --cpus go with --ray; without it one process uses all cores.")
    if min(counts, default=1) < 1:
        raise RegardError("--workers and --cpus must be at least 1.")
    if ray is not None:
        from regard.serve.cluster import on_ray

        chosen = on_ray(ray, workers, cpus or 1)
        return lambda: chosen

    def local() -> "Engine":
        from regard.serve.job import Worker
        from regard.serve.offline import here

        return here(Worker(job, load_model(job.model, job.device, job.dtype)))

    return local
