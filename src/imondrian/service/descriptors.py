"""File descriptors: how many connections the system lets this process have."""

import sys

from imondrian.errors import InvalidInputError
from imondrian.service.settings import Bounds

if sys.platform != "win32":  # which has no such limits
    import resource

_OWN = 64  # of the process itself: files, the event loop, the listener
_FEWEST = 16  # connections


def within_descriptors(bounds: Bounds) -> Bounds:
    """Raise the limit of this process as far as needed and allowed, and lower the number of connections to fit.

    Connections that are accepted together are open for some turns of the event loop before the surplus is closed.
    """
    if sys.platform == "win32":
        return bounds
    n_spare = _OWN + 4 * bounds.backlog
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < bounds.connections + n_spare:
        wanted = bounds.connections + n_spare
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        bounds = bounds._replace(connections=min(bounds.connections, soft - n_spare))
    if bounds.connections < _FEWEST:
        raise InvalidInputError(
            f"The service needs at least {_FEWEST + n_spare} file descriptors, but the limit (ulimit -n) is {soft}."
        )
    return bounds
