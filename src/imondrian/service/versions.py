"""The versions that scores depend on to the last bit: those of the packages, of Python and of the processor."""

import hashlib
import platform

import llvmlite
import llvmlite.binding
import numba
import numpy as np

import imondrian

Versions = dict[str, str]


def present_versions() -> Versions:
    """Return the versions under which this process computes scores."""
    return {
        "imondrian": imondrian.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "libc": " ".join(platform.libc_ver()).strip(),
        "machine": platform.machine(),
        "processor": numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
        "instructions": _instructions(),
    }


def difference(before: Versions, now: Versions) -> str:
    """Name what differs; versions that are empty are unknown."""
    if not before:
        return "unknown versions"
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'unknown')}, now {now.get(name, 'unknown')}" for name in names)


def _instructions() -> str:
    """Digest the instruction sets that code is generated for: machines of one processor name may differ in them."""
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    return hashlib.blake2b(features.encode(), digest_size=4).hexdigest()
