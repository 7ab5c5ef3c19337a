"""Load a model file that the user named."""

from imondrian.base.errors import InvalidInputError
from imondrian.model_files import Model, load_model


def load_model_file(path: str) -> Model:
    """Load a model file; raise an InvalidInputError if it is missing or a folder."""
    try:
        return load_model(path)
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: file not found.") from None
    except IsADirectoryError:
        raise InvalidInputError(f"{path} is a folder, not a file.") from None
