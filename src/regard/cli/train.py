"""`regard train`: from a file of text to a model."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.say import remark


def command(
    task: Annotated[str, typer.Argument(help="lm, mlm, classify, tag, translate or chat.")],
    data: Annotated[
        list[str] | None, typer.Option(help="Files, globs, or - for stdin; may be given several times.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="The run's directory.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file; flags go over it.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="A model to go on from, instead of from scratch.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    eval_data: Annotated[list[str] | None, typer.Option(help="Held-out files; else a share of --data.")] = None,
    format: Annotated[
        str | None, typer.Option(help="text, jsonl, csv, tsv, parallel or conllu, if the name does not say.")
    ] = None,
    document: Annotated[str | None, typer.Option(help="Plain text: a file, a paragraph or a line is one text.")] = None,
    max_steps: Annotated[int | None, typer.Option()] = None,
    epochs: Annotated[float | None, typer.Option()] = None,
    batch_size: Annotated[int | None, typer.Option(help="Texts per step.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens per step, texts of like length together.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Parts a step is computed in.")] = None,
    block_size: Annotated[int | None, typer.Option(help="The longest text, in tokens.")] = None,
    learning_rate: Annotated[float | None, typer.Option()] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine, linear, constant, noam or inverse-sqrt.")] = None,
    warmup_steps: Annotated[int | None, typer.Option()] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    label_smoothing: Annotated[float | None, typer.Option()] = None,
    dropout: Annotated[float | None, typer.Option()] = None,
    family: Annotated[str | None, typer.Option(help="gpt2, llama; m2m_100, marian, bart, vaswani, gru.")] = None,
    layers: Annotated[int | None, typer.Option()] = None,
    width: Annotated[int | None, typer.Option()] = None,
    heads: Annotated[int | None, typer.Option()] = None,
    d_ff: Annotated[int | None, typer.Option()] = None,
    tokenizer: Annotated[str | None, typer.Option(help="bpe, wordpiece, unigram, characters, or a model's.")] = None,
    vocab_size: Annotated[int | None, typer.Option()] = None,
    eval_steps: Annotated[int | None, typer.Option()] = None,
    save_steps: Annotated[int | None, typer.Option()] = None,
    log_steps: Annotated[int | None, typer.Option()] = None,
    save_total_limit: Annotated[int | None, typer.Option(help="Checkpoints kept besides the best.")] = None,
    patience: Annotated[int | None, typer.Option(help="Evaluations without improvement before stopping.")] = None,
    class_weights: Annotated[bool | None, typer.Option("--class-weights", help="Rare classes count more.")] = None,
    whole_word: Annotated[bool | None, typer.Option("--whole-word", help="mlm: hide whole words.")] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="A sentence to look at while training; may be given several times.")
    ] = None,
    probe_steps: Annotated[int | None, typer.Option()] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    bf16: Annotated[bool | None, typer.Option("--bf16", help="Compute in bfloat16 where that is safe.")] = None,
    compile: Annotated[bool | None, typer.Option("--compile", help="torch.compile the network.")] = None,
    checkpoint_activations: Annotated[
        bool | None,
        typer.Option("--checkpoint-activations", help="Keep less for the backward pass and compute it again."),
    ] = None,
    threads: Annotated[int | None, typer.Option()] = None,
    shard: Annotated[
        bool | None, typer.Option("--shard/--no-shard", help="Under torchrun: share the weights too (FSDP2).")
    ] = None,
) -> None:
    """Train a model on your own text, from scratch or further.

    regard train lm --data book.txt --out runs/book
    regard train translate --data pairs.tsv --out runs/fr --epochs 20
    regard train classify --data reviews.tsv --from minilm --out runs/reviews
    """
    given = {name: value for name, value in locals().items() if name not in ("task", "config", "resume", "probe")}
    given["probes"] = probe
    from regard.api import train_settings, train_with
    from regard.train.parallel import speaks

    settings = train_settings(task, config, given, resume)
    if not speaks():
        train_with(settings, resume=resume)
        return
    with Screen() as screen:
        run = train_with(settings, resume=resume, tell=screen.tell, progress=screen.prepared)
    remark(f"The model is in {run}; its picture is {run / 'report.svg'}.")


class Screen:
    """What a person sees while a model trains: sentences, a bar for the data, and one for the steps."""

    def __enter__(self) -> "Screen":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not sys.stderr.isatty(),
        )
        self.bar.start()
        self.data: Any = None
        self.steps: Any = None
        self.facts = ""
        return self

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()

    def prepared(self, done: int, total: int) -> None:
        if self.data is None:
            self.data = self.bar.add_task("Tokenising", total=total, facts="bytes")
        self.bar.update(self.data, completed=done, total=total)

    def tell(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "said":
            self.bar.console.print(event["text"], markup=False)
        elif kind == "step":
            if self.steps is None:
                self.steps = self.bar.add_task("Training", total=event["total"], completed=event["step"] - 1, facts="")
            self.bar.update(self.steps, completed=event["step"], facts=f"loss {event['loss']:.3f} {self.facts}")
        elif kind == "log" and "rate" in event:
            self.facts = f"{event['rate']:,.0f} tok/s {event['memory']:,} MB"
            if not sys.stderr.isatty():
                remark(f"step {event['step']}  loss {event['loss']:.4f}  lr {event['lr']:.2e}  {self.facts}")
        elif kind == "log" and "eval" in event:
            told = "  ".join(f"{name} {value:.4g}" for name, value in event["eval"].items())
            self.bar.console.print(f"step {event['step']}: held out {told}", markup=False)
