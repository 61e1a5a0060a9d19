"""Available memory of the machine, and of the container (cgroup) that this process may run in."""

import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def container_memory(own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Memory left below the limits of this process's cgroup (v2) and its parents; reclaimable page cache is free."""
    left = []
    with suppress(OSError, StopIteration, ValueError):
        path = next(line.split(":", 2)[2] for line in own.read_text().splitlines() if line.startswith("0::"))
        groups = [CGROUP / path.strip("/"), *(CGROUP / path.strip("/")).parents]
        for group in groups[: groups.index(CGROUP) + 1]:
            with suppress(OSError, ValueError):  # "max": no limit, and none at the root
                limit, used = (int((group / f"memory.{what}").read_text()) for what in ("max", "current"))
                fields = (line.split() for line in (group / "memory.stat").read_text().splitlines())
                files = next((int(value) for name, value in fields if name == "inactive_file"), 0)
                left.append(max(0, limit - used + files))
    return left


def available_memory() -> int | None:
    """Bytes available without swapping, within the container's limit; None if the system does not report it."""
    with suppress(OSError, StopIteration):
        with open("/proc/meminfo") as lines:
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        return min([kilobytes * 1024, *container_memory()])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
