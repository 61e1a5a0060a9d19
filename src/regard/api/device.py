"""The device and number format that a network computes with: what the caller requested, checked against this machine."""

import os
import sys
from typing import TYPE_CHECKING

from regard.errors import ConfigError, installed, require

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16", "float16")
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # on Linux, a GPU that PyTorch supports has one of these


def choose_dtype(dtype: "str | torch.dtype | None") -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; it can be {', '.join(DTYPES)}.")
    return name


def choose_device(device: str) -> str:
    if device == "cpu" or (device == "auto" and sys.platform == "linux" and not any(map(os.path.exists, DRIVERS))):
        return "cpu"
    if device == "auto":
        torch = installed("torch")  # without PyTorch no GPU is used
        return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    torch = require("torch", f"device={device!r}")
    try:
        torch.ones(1, device=device).item()  # fails unless torch knows the device and it computes
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(f"device is {device!r}, which cannot be used here; auto takes what there is.") from None
    return str(torch.device(device))
