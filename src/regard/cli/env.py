"""`regard env`: versions and hardware, for a bug report."""

from regard.cli.console import AsJSON, print_aligned, print_json


def command(json: AsJSON = False) -> None:
    """Print versions and hardware, for a bug report.

    regard env
    regard env --json
    """
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from regard import __version__
    from regard.engine.native.library import library
    from regard.engine.threads import threads
    from regard.errors import installed
    from regard.store.system_memory import available_memory

    native, torch = library(), installed("torch")

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
    facts["native engine"] = None if native is None else native.regard_choose(None).decode()
    facts["cores"], facts["threads"] = os.cpu_count(), threads()
    free = available_memory()
    facts["memory free"] = f"{free / 2**30:.1f} GiB" if free else None
    facts["gpu"] = torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None
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
