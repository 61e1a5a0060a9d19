"""A comparison with a peer in the same run, taking turns: machines are noisy, ratios less so."""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Rates (higher is better) of both sides, the median of several turns each."""

    what: str
    unit: str
    ours: float
    theirs: float
    aim: float | None = None  # of the ratio

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    def row(self) -> str:
        aim = "" if self.aim is None else f"≥ {self.aim:g}× {'met' if self.ratio >= self.aim else '**not met**'}"
        sides = f"{self.ours:,.1f} {self.unit} | {self.theirs:,.1f} {self.unit}"
        return f"| {self.what} | {sides} | {self.ratio:.2f}× | {aim} |"


@dataclass(frozen=True)
class Measured:
    """A time or a size on its own, with its limit."""

    what: str
    value: float
    limit: float
    unit: str = "s"

    def row(self) -> str:
        verdict = "met" if self.value <= self.limit else "**not met**"
        value, limit = (f"{x:.1f}" if x >= 100 else f"{x:.3g}" for x in (self.value, self.limit))
        return f"| {self.what} | {value} {self.unit} | | | ≤ {limit} {self.unit} {verdict} |"


@dataclass(frozen=True)
class Share:
    """A ratio, with the value that it must reach or must not exceed."""

    what: str
    share: float
    at_least: float | None = None
    at_most: float | None = None

    def row(self) -> str:
        met = self.share >= (self.at_least or 0) and (self.at_most is None or self.share <= self.at_most)
        aim = f"≥ {self.at_least:.0%}" if self.at_least is not None else f"≤ {self.at_most:.0%}"
        return f"| {self.what} | | | {self.share:.1%} | {aim} {'met' if met else '**not met**'} |"


def alternate(
    what: str,
    unit: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    *,
    rounds: int = 9,
    aim: float | None = None,
) -> Comparison:
    """`ours()` and `theirs()` each return a rate. One turn of each is a warm-up, then they take turns."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    our_rate, their_rate = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Comparison(what, unit, our_rate, their_rate, aim)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def machine() -> dict[str, str]:
    """The machine and versions that the figures were measured on."""
    import platform
    from importlib.metadata import version

    import torch

    from regard.cli.env import processor

    load = os.getloadavg()[0]
    return {
        "processor": f"{processor()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
        "memory read": f"{memory_speed():.1f} GB/s",
        "float32 product": f"{product_speed():.0f} GFLOP/s",
        "versions": f"Python {platform.python_version()}, torch {version('torch')}, transformers {version('transformers')}",
        "threads": str(torch.get_num_threads()),
        "load before": f"{load:.2f}",
    }


def memory_speed() -> float:
    import torch

    x = torch.ones(64 << 20)  # 256 MB
    x.sum()
    return 5 * x.numel() * 4 / seconds(lambda: [x.sum() for _ in range(5)]) / 1e9


def product_speed(n: int = 2048) -> float:
    import torch

    A, B = torch.randn(n, n), torch.randn(n, n)
    A @ B
    return 3 * 2 * n**3 / seconds(lambda: [A @ B for _ in range(3)]) / 1e9
