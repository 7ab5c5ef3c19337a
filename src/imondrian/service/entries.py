"""What stands in the journal, and what was answered to it."""

import hashlib
from typing import NamedTuple

from imondrian.errors import InvalidInputError
from imondrian.service.settings import Limits

POINTS, FORGET, MODEL = "points", "forget", "model"
NEW_MODEL = "new model"  # with which a detector was made, and so the first entry of its journal
MODELS = (MODEL, NEW_MODEL)


class Entry(NamedTuple):
    """Something that is done to a detector."""

    number: int  # counted from 1
    kind: str
    content: bytes
    request: str | None  # the id that the request was given by who sent it
    time: float  # when it came, in seconds


class Answer(NamedTuple):
    """A status of HTTP and a body of JSON, the same bytes whenever the same request is answered."""

    status: int
    content: bytes


class Given(NamedTuple):
    """An answer that was given to a request with an id."""

    number: int  # of the entry in the journal
    request: str
    sent: bytes  # the digest of what was sent
    answer: Answer


def checked_request(request: str | None, limits: Limits) -> str | None:
    """Check the id of a request, if it has one."""
    n_most = limits.request_id_length
    is_right = request is None or (0 < len(request) <= n_most and all("!" <= letter <= "~" for letter in request))
    if not is_right:
        raise InvalidInputError(
            f"The id of a request must be 1 to {n_most} visible characters of ASCII, but is {request!r:.200}."
        )
    return request


def digest_of(*values: object) -> bytes:
    """Digest values of any kind, each with its length."""
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        content = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.digest()
