"""Entry point of the command `imondrian` and of `python -m imondrian`."""

import gc
import sys

_EXTRAS = {"click", "rich", "polars", "matplotlib"}  # packages that the extra "cli" installs


def main() -> None:
    """Run the command line; if a package is missing, print what to install."""
    gc.set_threshold(100_000)  # importing creates many objects, and hardly any garbage
    try:
        from imondrian.cli.app import main as run  # noqa: PLC0415

        run()
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        sys.stderr.write(f'imondrian: the command line needs {error.name}: pip install "imondrian[cli]"\n')
        sys.exit(2)
    finally:
        gc.freeze()  # otherwise the interpreter would spend 0.2 s at its end on searching all modules for garbage


if __name__ == "__main__":
    main()
