"""On which device a network computes, and in which number format: what a person asked for, checked against what is here."""

import os
import sys
from typing import TYPE_CHECKING

from regard.errors import ConfigError

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # one of which a GPU that PyTorch knows has, on Linux


def choose_dtype(dtype: "str | torch.dtype | None") -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; it can be {', '.join(DTYPES)}.")
    return name


def choose_device(device: str) -> str:
    if device == "cpu" or (device == "auto" and sys.platform == "linux" and not any(map(os.path.exists, DRIVERS))):
        return "cpu"
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.ones(1, device=device).item()  # a device that torch knows, and that is here and computes
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(f"device is {device!r}, which cannot be used here; auto takes what there is.") from None
    return str(torch.device(device))
