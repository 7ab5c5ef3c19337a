"""A small client: the detectors of a service from Python, with nothing but the standard library."""

import json
import math
import time
import uuid
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

from imondrian.errors import ImondrianError, InvalidInputError

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_LATER = (429, 502, 503, 504)  # busy, or about to end, or a proxy finds it so
_JSON, _MODEL = "application/json", "application/octet-stream"


class ServiceError(ImondrianError):
    """The service has refused a request, or does not answer; `status` is what it answered with, None if it did not."""

    def __init__(self, status: int | None, detail: str) -> None:
        super().__init__(detail if status is None else f"The service answered {status}: {detail}")
        self.status = status


class _Reply(NamedTuple):
    status: int
    content_type: str
    content: bytes
    wait: float  # seconds, that the service asks for

    def value(self) -> Any:
        """Read the JSON of an answer."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise ServiceError(self.status, f"what should be JSON is {self.content[:100]!r}.") from None

    def detail(self) -> str:
        """Give what was wrong, as the service tells it."""
        try:
            return str(json.loads(self.content)["detail"])
        except (ValueError, KeyError, TypeError):
            return self.content[:200].decode(errors="replace")


class Client:
    """A connection to a service, for one thread; also a context manager.

    While the service is busy, gone or starts anew, a request is sent again until `timeout` has passed. What changes a
    detector has an id of its own, so that it is done once, however often it is sent.

    Parameters
    ----------
    address : str, default="http://127.0.0.1:8765"
    token : str, optional
        The service's token, if it asks for one.
    timeout : float, default=30.0
        Seconds after which a request is given up.
    """

    def __init__(self, address: str = "http://127.0.0.1:8765", token: str | None = None, timeout: float = 30.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise InvalidInputError(f"address must be such as http://127.0.0.1:8765, but is {address!r}.")
        if not (timeout > 0 and math.isfinite(timeout)):
            raise InvalidInputError(f"timeout must be a number of seconds above 0, but is {timeout!r}.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidInputError("token must be of printable ASCII characters.")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.netloc, timeout=timeout)
        self._address, self._base, self._timeout = address, parts.path.rstrip("/"), timeout
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()

    # -- detectors ----------------------------------------------------------------------------------------------

    def create(self, name: str, features: Iterable[str], **settings: Any) -> dict[str, Any]:
        """Make a detector, unless there is the same already; give its description."""
        return self._json("PUT", _path(name), {"features": list(features), **settings})

    def detectors(self) -> list[dict[str, Any]]:
        """Describe all detectors."""
        return self._asked("GET", "/detectors").value()

    def describe(self, name: str) -> dict[str, Any]:
        """Describe a detector."""
        return self._asked("GET", _path(name)).value()

    def remove(self, name: str) -> None:
        """Remove a detector and all that is kept of it."""
        self._asked("DELETE", _path(name))

    # -- points -------------------------------------------------------------------------------------------------

    def process(self, name: str, points: Any) -> list[dict[str, Any]]:
        """Score points, then have them learned; give for each index, anomaly_score, threshold, is_anomaly."""
        return self._json("POST", _path(name, "points"), {"points": _rows(points)}, uuid.uuid4().hex)["results"]

    def forget(self, name: str, points: Any) -> int:
        """Have points of the window forgotten, and give their number."""
        return self._json("DELETE", _path(name, "points"), {"points": _rows(points)}, uuid.uuid4().hex)["n_points"]

    def score(self, name: str, points: Any) -> list[float]:
        """Score points without learning them."""
        return self._json("POST", _path(name, "scores"), {"points": _rows(points)})["anomaly_score"]

    def explain(self, name: str, points: Any) -> list[dict[str, Any]]:
        """Divide the scores of points among the features, without learning them."""
        return self._json("POST", _path(name, "explanations"), {"points": _rows(points)})["explanations"]

    # -- model files --------------------------------------------------------------------------------------------

    def model(self, name: str) -> bytes:
        """Give the model file of a detector; `imondrian.load` reads it once it is written to a disk."""
        return self._asked("GET", _path(name, "model")).content

    def restore(self, name: str, model: bytes) -> int:
        """Make a detector from a model file, or let the one of that name and configuration go on from it.

        Return the number of points it has seen.
        """
        return self._asked("PUT", _path(name, "model"), model, _MODEL, uuid.uuid4().hex).value()["n_points"]

    def replace(self, name: str, model: bytes) -> int:
        """Do as `restore` with a detector that must be there."""
        self.describe(name)
        return self.restore(name, model)

    # -- inside -------------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: Any, request_id: str | None = None) -> Any:
        try:
            content = json.dumps(body, default=_plain).encode()
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"What is sent must be of numbers and text: {error}.") from None
        return self._asked(method, path, content, _JSON, request_id).value()

    def _asked(
        self, method: str, path: str, body: bytes | None = None, kind: str = _JSON, request_id: str | None = None
    ) -> _Reply:
        """Ask, and ask again while the service is busy or gone."""
        headers = self._headers | ({} if body is None else {"Content-Type": kind})
        headers |= {} if request_id is None else {"Idempotency-Key": request_id}
        last, wait = time.monotonic() + self._timeout, _FIRST_WAIT
        while True:
            try:
                reply = self._sent(method, self._base + path, body, headers)
            except (HTTPException, OSError) as error:
                self.close()
                reply = _Reply(
                    503, "", f"{self._address} does not answer: {error or type(error).__name__}".encode(), 0.0
                )
            if 200 <= reply.status < 300:
                return reply
            wait = max(wait, reply.wait)
            if reply.status not in _LATER or time.monotonic() + wait > last:
                raise ServiceError(reply.status if reply.content_type else None, reply.detail())
            time.sleep(wait)
            wait = min(2.0 * wait, _LONGEST_WAIT)

    def _sent(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> _Reply:
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        content, wait = response.read(), response.getheader("Retry-After", "0")
        return _Reply(
            response.status,
            response.getheader("Content-Type", "") or "none",
            content,
            float(wait) if wait.isdigit() else 0.0,
        )


def _path(name: str, *parts: str) -> str:
    return "/".join(["", "detectors", quote(name, safe=""), *parts])


def _rows(points: Any) -> list[Any]:
    """Give rows as JSON can hold them; those of a frame (pandas, polars) by the names of its columns."""
    if hasattr(points, "to_dicts"):
        return points.to_dicts()
    if hasattr(points, "to_dict") and hasattr(points, "columns"):
        return points.to_dict(orient="records")
    return list(points)


def _plain(value: Any) -> Any:
    """Give arrays and numbers of numpy as JSON can hold them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r:.100} is neither")
