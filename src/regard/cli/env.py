"""`regard env`: the facts of this machine that a bug report needs."""

from regard.cli.say import AsJSON, print_aligned, print_json


def command(json: AsJSON = False) -> None:
    """Say with which versions, processor and memory regard runs.

    regard env
    regard env --json
    """
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from regard import __version__
    from regard.store.memory import available_memory

    facts: dict[str, str | int | None] = {
        "regard": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    for package in ("torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "jinja2", "transformers"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = None
    facts["processor"] = processor()
    facts["instruction set"] = torch.backends.cpu.get_cpu_capability()
    facts["cores"], facts["threads"] = os.cpu_count(), torch.get_num_threads()
    free = available_memory()
    facts["memory free"] = f"{free / 2**30:.1f} GiB" if free else None
    facts["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if json:
        print_json(facts)
    else:
        print_aligned([(name, "none" if value is None else str(value)) for name, value in facts.items()])


def processor() -> str:
    import platform

    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
