"""`regard show`: a network's forward pass as a listing."""

from regard.cli.console import AsJSON, print_json
from regard.cli.inspect import Described, find_spec


def command(
    model: Described,
    json: AsJSON = False,
) -> None:
    """Print a network's forward pass as a listing, with shapes. No weights are loaded: a configuration is enough.

    regard show gpt2
    regard show path/to/config.json --json
    """
    from regard.explain.show import as_json, show

    spec, _ = find_spec(model)
    if json:
        print_json(as_json(spec))
    else:
        print(show(spec))
