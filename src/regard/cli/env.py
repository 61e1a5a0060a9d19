"""`regard env`: the facts of this machine that a bug report needs."""

from regard.cli.say import AsJSON, print_json


def command(json: AsJSON = False) -> None:
    """Say which versions, processor and memory regard is running with."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from regard import __version__
    from regard.store.open import available_memory

    facts: dict[str, object] = {
        "regard": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    for package in ("torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "jinja2", "transformers"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["processor"] = processor()
    facts["instruction set"] = torch.backends.cpu.get_cpu_capability()
    facts["cores"], facts["threads"] = os.cpu_count(), torch.get_num_threads()
    free = available_memory()
    facts["memory free"] = f"{free / 2**30:.1f} GiB" if free else "unknown"
    facts["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    if json:
        print_json(facts)
        return
    for name, value in facts.items():
        print(f"{name:<16} {value}")


def processor() -> str:
    import platform

    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
