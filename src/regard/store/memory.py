"""How much memory there is: of the machine, and of the container that this process may be in."""

import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def container_memory(own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """What a control group (version 2), and each one around it, leaves of its limit; pages of files can be given back."""
    left = []
    with suppress(OSError, StopIteration, ValueError):
        path = next(line.split(":", 2)[2] for line in own.read_text().splitlines() if line.startswith("0::"))
        groups = [CGROUP / path.strip("/"), *(CGROUP / path.strip("/")).parents]
        for group in groups[: groups.index(CGROUP) + 1]:
            with suppress(OSError, ValueError):  # "max": no limit, and none at the root
                limit, used = (int((group / f"memory.{what}").read_text()) for what in ("max", "current"))
                told = (line.split() for line in (group / "memory.stat").read_text().splitlines())
                files = next((int(value) for name, value in told if name == "inactive_file"), 0)
                left.append(max(0, limit - used + files))
    return left


def available_memory() -> int | None:
    """Bytes that can be had without swapping, where the system tells; in a container, of what the container may have."""
    with suppress(OSError, StopIteration):
        with open("/proc/meminfo") as lines:
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        return min([kilobytes * 1024, *container_memory()])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
