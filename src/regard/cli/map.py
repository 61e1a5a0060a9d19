"""`regard map`: batch inference, a task over the rows of files of any length."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import (
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
    print_stderr,
    progress,
    readable_path,
    show_warnings,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.batch.runner import Executor
    from regard.batch.task import BatchTask

ROWS, CLUSTER = "Input rows", "Many machines (Ray)"
DOING = {
    "embed": "Embedding",
    "generate": "Generating",
    "classify": "Classifying",
    "translate": "Translating",
    "tag": "Tagging",
}


def command(
    task: Annotated[str, typer.Argument(help="embed, generate, classify, translate or tag.")],
    model: Annotated[str, typer.Option(help="A model's name, directory or .gguf file, or a name on the hub.")],
    files: Annotated[list[str], typer.Option("--in", help="Files or globs; may be given several times.")],
    out: Annotated[Path, typer.Option(help="The output file: a line of JSON per row.", metavar="FILE")],
    field: Annotated[
        str | None, typer.Option(help="The field or column with the text; else text.", rich_help_panel=ROWS)
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="text, jsonl, csv or tsv; else by the file's extension.", rich_help_panel=ROWS),
    ] = None,
    echo: Annotated[
        bool, typer.Option("--echo", help="Include each text in its row of the output.", rich_help_panel=ROWS)
    ] = False,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate", help="Truncate texts that are longer than the model's context.", rich_help_panel=ROWS
        ),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of resuming an interrupted run.")
    ] = False,
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
        int | None,
        typer.Option(help="Workers, each with a model; else as many as fit.", metavar="N", rich_help_panel=CLUSTER),
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(help="Cores per worker; else 1.", metavar="N", rich_help_panel=CLUSTER)
    ] = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Run a task over every row of large files (batch inference). The results are lines of JSON, in order; a row that
    fails has an "error" that says why. An interrupted run is resumed by giving the same command again.

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

    from regard.batch.input import scan
    from regard.batch.runner import check_absent, run
    from regard.batch.task import BatchTask, check
    from regard.store.open_model import open_model

    check_absent(out)
    job = BatchTask(task, model, settings, dtype, device, echo)
    opened = open_model(model)
    check(job, opened)
    executor = executor_for(job, ray, workers, cpus)
    with progress("Reading", "bytes") as update:
        rows = scan(files, field, format, update)
    try:
        identity, bar = job.identity(opened), partial(progress, DOING[task], "rows")
        reached = run(job, identity, rows, out, executor, restart=restart, progress=bar)
    except KeyboardInterrupt:
        print_stderr(f"Stopped; the same command resumes {readable_path(out.absolute())}.")
        raise
    wrong = f"; errors: {reached.errors:,}" if reached.errors else ""
    cut = f"; truncated texts: {reached.cut:,}" if reached.cut else ""
    print_stderr(f"{readable_path(out.absolute())} has {reached.rows:,} rows{wrong}{cut}.")


def settings_for(task: str, given: dict[str, Any], truncate: bool) -> dict[str, Any]:
    """The settings that were given. A run is reproducible: without --seed the seed is 0, not a random one."""
    settings = generation_settings(**given)
    if task not in ("generate", "translate"):
        if settings:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in settings)
            raise RegardError(f"{names}: {task} generates no text, so leave it out.")
        return {"truncate": True} if truncate else {}
    if truncate:
        raise RegardError(f"--truncate: {task} never truncates its input; it is for embed, classify and tag.")
    beams = {"num_beams": 4} if task == "translate" else {}
    return {"seed": 0, **beams, **settings}


def executor_for(job: "BatchTask", ray: str | None, workers: int | None, cpus: int | None) -> Any:
    """A function that makes what computes the rows: this process, or Ray. It is called only if rows are left."""
    counts = [n for n in (workers, cpus) if n is not None]
    if ray is None and counts:
        raise RegardError("--workers and --cpus need --ray; without it one process uses all cores.")
    if min(counts, default=1) < 1:
        raise RegardError("--workers and --cpus must be at least 1.")
    if ray is not None:
        from regard.batch.ray_data import ray_executor

        chosen = ray_executor(ray, workers, cpus or 1)
        return lambda: chosen

    def local() -> "Executor":
        from regard.batch.runner import local_executor
        from regard.batch.task import Worker

        return local_executor(Worker(job, load_model(job.model, job.device, job.dtype)))

    return local
