"""How much memory is free, so that a large request fails with an error instead of ending the process."""

import os
from contextlib import suppress
from pathlib import Path

_ALWAYS_ALLOWED = 2**28  # bytes
_MACHINE, _CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")  # of Linux


def check_memory(n_bytes: int, purpose: str) -> None:
    """Raise MemoryError if so much memory is not free; `purpose` is the beginning of the message.

    An operating system usually grants any request, and ends a process, perhaps another one, when the memory is used.
    """
    if n_bytes <= _ALWAYS_ALLOWED:
        return
    n_free = free_bytes()
    if n_free is not None and n_bytes > n_free:
        raise MemoryError(f"{purpose} {n_bytes / 1e9:.1f} GB of memory, but only {n_free / 1e9:.1f} GB are free.")


def free_bytes() -> int | None:
    """Return how much memory the process can still use; None if that is not known."""
    found = [n_bytes for n_bytes in (_free_on_machine(), _free_in_container()) if n_bytes is not None]
    return min(found, default=None)


def _free_on_machine() -> int | None:
    with suppress(OSError, KeyError, ValueError):
        figures = _figures(_MACHINE)
        return 1024 * (figures["MemAvailable:"] + figures["SwapFree:"])
    with suppress(OSError, ValueError, AttributeError):  # macOS: all of the memory
        n_pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return n_pages * size if min(n_pages, size) > 0 else None
    return None


def _free_in_container() -> int | None:
    with suppress(OSError, KeyError, ValueError):  # ValueError: there is no limit ("max")
        limit, used = (int((_CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        figures = _figures(_CONTAINER / "memory.stat")
        return max(limit - used + figures["active_file"] + figures["inactive_file"], 0)  # cached files can be dropped
    return None


def _figures(path: Path) -> dict[str, int]:
    """Return the numbers in a file of the system by name."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1}
