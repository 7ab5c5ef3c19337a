"""JSON of a large response, written in pieces: writing all of it at once would hold the GIL for seconds."""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, RootModel
from pydantic_core import to_json

_ITEMS_PER_PIECE = 100  # numbers, texts or rows; objects such as explanations can be large, so one at a time


def json_pieces(content: BaseModel) -> Iterator[bytes]:
    """Yield the JSON of a response in pieces; together they are the same as `content.model_dump_json()`.

    The schema must not have aliases or excluded fields.
    """
    if isinstance(content, RootModel):
        yield from _value(content.root)
        return
    start = b"{"
    for name in type(content).model_fields:
        yield start + to_json(name) + b":"
        yield from _value(getattr(content, name))
        start = b","
    yield b"}"


def _value(value: Any) -> Iterable[bytes]:
    """Return the JSON of a value; of a list, in pieces."""
    return _items(value) if isinstance(value, list) and value else (_json(value),)


def _items(items: list[Any]) -> Iterator[bytes]:
    n_at_once = 1 if isinstance(items[0], BaseModel) else _ITEMS_PER_PIECE
    start = b"["
    for i in range(0, len(items), n_at_once):
        yield start + _json(items[i : i + n_at_once])[1:-1]
        start = b","
    yield b"]"


def _json(value: Any) -> bytes:
    return to_json(value, by_alias=False, inf_nan_mode="null")
