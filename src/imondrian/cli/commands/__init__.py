"""The implementation of the commands; their options are parsed in `app`."""

import sys

_BLAS = "scipy.linalg.cython_blas"


def _load_numba_without_scipy() -> None:
    """Load Numba's array functions without SciPy, which would take 0.1 s to load.

    Numba imports SciPy's BLAS, if it is installed, to find out whether `np.cov` can be compiled. No kernel needs
    `np.cov`. Only the command line prevents this import: in a user's program, that could disable `np.cov`.
    """
    if _BLAS in sys.modules:
        return
    sys.modules[_BLAS] = None  # type: ignore[assignment]  # importing it raises ImportError
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules[_BLAS]


_load_numba_without_scipy()
