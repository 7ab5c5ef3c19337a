"""A Python client for the service; needs only the standard library."""

import json
import math
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from imondrian.base.errors import ImondrianError, InvalidInputError

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0  # seconds before a request is repeated; doubled after each failure
_KEYS_PER_PAGE = 1_000
_RETRY = (429, 502, 503, 504)  # statuses: the service is busy or restarting, or a proxy cannot reach it
_HEARTBEAT_TIMEOUT = 60.0  # seconds; the service sends something every 15 s
_BACKUP_TIMEOUT = 600.0  # seconds; the service copies its data before it sends the first byte
_JSON, _MODEL = "application/json", "application/octet-stream"


class ServiceError(ImondrianError):
    """The service refused a request, or does not respond.

    Attributes
    ----------
    status : int or None
        The HTTP status of the response, or None if there was no response.
    """

    def __init__(self, status: int | None, detail: str) -> None:
        super().__init__(detail if status is None else f"The service returned {status}: {detail}")
        self.status = status


class Backup(NamedTuple):
    """What `Client.backup` has written."""

    n_bytes: int
    n_detectors: int


class _Reply(NamedTuple):
    status: int
    content_type: str
    content: bytes
    wait: float  # seconds, from the header Retry-After

    def value(self) -> Any:
        """Return the decoded JSON."""
        try:
            return json.loads(self.content)
        except ValueError:
            raise ServiceError(self.status, f"the response must be JSON, but is {self.content[:100]!r}.") from None

    def detail(self) -> str:
        """Return the error message of the service."""
        try:
            return str(json.loads(self.content)["detail"])
        except (ValueError, KeyError, TypeError):
            return self.content[:200].decode(errors="replace")


class Client:
    """A connection to a service, for use in one thread; also a context manager.

    While the service is busy, unreachable or restarting, a request is repeated until `timeout` has passed. Only the
    request of `backup` is never repeated, and may take longer. Requests that learn, forget, restore or change settings
    have a unique id, so the service applies each of them only once, however often it is sent.

    Parameters
    ----------
    address : str, default="http://127.0.0.1:8765"
        The URL of the service.
    token : str, optional
        The token, if the service requires one.
    timeout : float, default=30.0
        Seconds after which a request is abandoned.
    """

    def __init__(self, address: str = "http://127.0.0.1:8765", token: str | None = None, timeout: float = 30.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise InvalidInputError(f"address must be a URL such as http://127.0.0.1:8765, but is {address!r}.")
        if not (timeout > 0 and math.isfinite(timeout)):
            raise InvalidInputError(f"timeout must be a finite number of seconds above 0, but is {timeout!r}.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidInputError("token must consist of printable ASCII characters.")
        self._connection_type = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = self._connection_type(parts.netloc, timeout=timeout)
        self._netloc = parts.netloc
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
        """Create a detector unless it exists, and return its description.

        Parameters
        ----------
        name : str
            Up to 64 letters, digits, dots, hyphens and underscores; the first must be a letter or a digit.
        features : iterable of str
            The names of the features.
        **settings
            Settings of the detector: arguments of `StreamDetector` (except `on_error`, `n_jobs` and `rules`), fields
            of `IncidentRules`, and `silence`, `time`, `key` and `max_bytes`; `categorical` is a list of feature names.
        """
        return self._json("PUT", _path(name), {"features": list(features), **settings})

    def detectors(self) -> list[dict[str, Any]]:
        """Return the descriptions of all detectors."""
        return self._request("GET", "/detectors").value()

    def describe(self, name: str) -> dict[str, Any]:
        """Return the description of a detector."""
        return self._request("GET", _path(name)).value()

    def change(self, name: str, **settings: Any) -> dict[str, Any]:
        """Change settings of a detector, which keeps everything that it has learned.

        Parameters
        ----------
        name : str
            The detector.
        **settings
            New values of `threshold`, `gap`, `min_points`, `cooldown`, `side`, `ignore_within` or `silence`.

        Returns
        -------
        dict
            The values of all these settings.
        """
        return self._json("PATCH", _path(name), settings, uuid.uuid4().hex)

    def remove(self, name: str) -> None:
        """Remove a detector and all its data."""
        self._request("DELETE", _path(name))

    # -- points -------------------------------------------------------------------------------------------------

    def process(self, name: str, points: Any) -> list[dict[str, Any]]:
        """Score points, then learn them.

        Parameters
        ----------
        name : str
            The detector.
        points : array-like, DataFrame or list of dict
            The rows; the columns of a DataFrame and the keys of dictionaries are matched by feature name. None, NaN and
            the missing values of pandas count as missing. A column or key `time` (or the name in the setting `time`) is
            the time of the point: text in ISO 8601 or a `datetime`, and with the preset "series" also seconds since
            1970.

        Returns
        -------
        list of dict
            For each point: index, anomaly_score, surprise, threshold, is_anomaly and incident; for a detector with a
            key also key and is_borrowed.
        """
        return self._json("POST", _path(name, "points"), {"points": _rows(points)}, uuid.uuid4().hex)["results"]

    def forget(self, name: str, points: Any) -> int:
        """Forget points of the window, and return how many were forgotten."""
        return self._json("DELETE", _path(name, "points"), {"points": _rows(points)}, uuid.uuid4().hex)["n_points"]

    def score(self, name: str, points: Any) -> list[float]:
        """Return the scores of points, without learning them."""
        return self._json("POST", _path(name, "scores"), {"points": _rows(points)})["anomaly_score"]

    def explain(self, name: str, points: Any) -> list[dict[str, Any]]:
        """Return the score of each point divided among the features, without learning the points."""
        return self._json("POST", _path(name, "explanations"), {"points": _rows(points)})["explanations"]

    # -- keys ---------------------------------------------------------------------------------------------------

    def keys(self, name: str, search: str = "", *, order: str = "surprise") -> Iterator[dict[str, Any]]:
        """Yield the keys of a detector with a key, with the figures of the latest row of each.

        Parameters
        ----------
        name : str
            The detector.
        search : str, optional
            Only keys that contain this text.
        order : "surprise", "name" or "time", default="surprise"
            By latest surprise, highest first; by name; or by time, latest first.
        """
        after: int | None = 0
        while after is not None:
            query = urlencode({"search": search, "order": order, "limit": _KEYS_PER_PAGE, "after": after})
            page = self._request("GET", f"{_path(name, 'keys')}?{query}").value()
            yield from page["keys"]
            after = page["next"]

    def forget_key(self, name: str, key: str | int) -> int:
        """Forget a key and its detector, and return how many rows the key had.

        The forest common to all keys keeps what it has learned from these rows.
        """
        path = _path(name, "keys", quote(str(key), safe=""))
        return self._request("DELETE", path, request_id=uuid.uuid4().hex).value()["n_points"]

    def history(self, name: str, key: str | int | None = None) -> dict[str, Any]:
        """Return the latest rows of a detector, or of one of its keys, as columns such as index, time and values."""
        query = "" if key is None else f"?{urlencode({'key': key})}"
        return self._request("GET", f"{_path(name, 'history')}{query}").value()

    # -- incidents ----------------------------------------------------------------------------------------------

    def incidents(self, name: str | None = None, *, limit: int = 100, only_open: bool = False) -> list[dict[str, Any]]:
        """Return the latest incidents of a detector, or by default of all: open ones first, then by time, latest first.

        Parameters
        ----------
        name : str, optional
            The detector.
        limit : int, default=100
            Maximum number of incidents, at most 1,000.
        only_open : bool, default=False
            Whether only open incidents are returned.
        """
        path = "/incidents" if name is None else _path(name, "incidents")
        query = urlencode({"limit": int(limit), "open": "true" if only_open else "false"})
        return self._request("GET", f"{path}?{query}").value()["incidents"]

    def events(self, after: int | None = None, *, follow: bool = True) -> Iterator[dict[str, Any]]:
        """Yield an event whenever an incident opens or closes.

        The iterator has its own connection, and reconnects if the connection is lost. It then also yields the events
        that it has missed, if they are among the latest 10,000.

        Parameters
        ----------
        after : int, optional
            The `id` of an event; the iterator begins with the next event. By default, it yields only new events.
        follow : bool, default=True
            Whether to wait for more events. If False, the iterator ends after the latest event.
        """
        deadline, wait = time.monotonic() + self._timeout, _FIRST_WAIT
        while True:
            try:
                for id_, data in self._listen(after, follow=follow):
                    deadline, wait = time.monotonic() + self._timeout, _FIRST_WAIT
                    after = after if id_ is None else id_
                    if data is not None:
                        yield json.loads(data)
                if not follow:
                    return
            except (HTTPException, OSError) as error:
                if time.monotonic() + wait > deadline:
                    raise ServiceError(None, f"{self._address} does not respond: {error}") from None
            except ServiceError as error:
                if error.status not in _RETRY or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(2.0 * wait, _LONGEST_WAIT)

    def _listen(self, after: int | None, *, follow: bool) -> Iterator[tuple[int | None, bytes | None]]:
        """Yield the id and the data of each block of a connection; each is None if missing. A heartbeat has neither."""
        connection = self._connection_type(self._netloc, timeout=max(self._timeout, _HEARTBEAT_TIMEOUT))
        headers = self._headers | ({} if after is None else {"Last-Event-ID": str(after)})
        try:
            connection.request("GET", f"{self._base}/events?follow={'true' if follow else 'false'}", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ServiceError(response.status, response.read(1000).decode(errors="replace"))
            fields: dict[bytes, bytes] = {}
            while line := response.readline():
                name, _, value = line.rstrip(b"\n").partition(b": ")
                fields[name] = value
                if line == b"\n":  # an empty line ends a block; a block that is cut off is not used
                    id_ = fields.get(b"id")
                    yield None if id_ is None else int(id_), fields.get(b"data")
                    fields = {}
        finally:
            connection.close()

    # -- model files --------------------------------------------------------------------------------------------

    def model(self, name: str) -> bytes:
        """Return the content of the model file of a detector; `imondrian.load` reads such a file."""
        return self._request("GET", _path(name, "model")).content

    def restore(self, name: str, model: bytes) -> int:
        """Create a detector from a model file, or replace the state of an existing one with the same configuration.

        Returns
        -------
        int
            The number of points that the detector in the file has seen.
        """
        return self._request("PUT", _path(name, "model"), model, _MODEL, uuid.uuid4().hex).value()["n_points"]

    def replace(self, name: str, model: bytes) -> int:
        """Like `restore`, but the detector must exist."""
        self.describe(name)
        return self.restore(name, model)

    def backup(self, path: str | os.PathLike[str]) -> Backup:
        """Write a copy of everything that the service stores to a file, while the service runs.

        To restore the copy, put it into an empty folder as `imondrian.db`, and start a service with that folder. Only
        the owner of the file can read it. The file is never incomplete: it is written under a temporary name, checked,
        and then renamed.

        Parameters
        ----------
        path : str or path-like
            The file to write.

        Returns
        -------
        Backup
            `n_bytes` and `n_detectors`.

        Raises
        ------
        ServiceError
            If the service does not respond or has too little disk space, or if the copy arrives incomplete.
        """
        target, part = Path(path), Path(f"{os.fspath(path)}.part")
        connection = self._connection_type(self._connection.host, self._connection.port, timeout=_BACKUP_TIMEOUT)
        part.unlink(missing_ok=True)
        try:
            found = _write_backup(self._response_to_backup(connection), part)
            part.replace(target)
        finally:
            connection.close()
            part.unlink(missing_ok=True)
        return found

    # -- private ------------------------------------------------------------------------------------------------

    def _response_to_backup(self, connection: HTTPConnection) -> HTTPResponse:
        """Request a backup, and return the response before its body has been read."""
        try:
            connection.request("GET", f"{self._base}/backup", headers=self._headers)
            return connection.getresponse()
        except (HTTPException, OSError) as error:
            raise ServiceError(None, f"{self._address} does not respond: {error or type(error).__name__}") from None

    def _json(self, method: str, path: str, body: Any, request_id: str | None = None) -> Any:
        try:
            content = _encoded(body)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"Values must be finite numbers, text or booleans: {error}.") from None
        return self._request(method, path, content, _JSON, request_id).value()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = _JSON,
        request_id: str | None = None,
    ) -> _Reply:
        """Send a request, and repeat it while the service is busy or unreachable."""
        headers = self._headers | ({} if body is None else {"Content-Type": content_type})
        headers |= {} if request_id is None else {"Idempotency-Key": request_id}
        deadline, wait = time.monotonic() + self._timeout, _FIRST_WAIT
        while True:
            try:
                reply = self._send(method, self._base + path, body, headers)
            except (HTTPException, OSError) as error:
                self.close()
                reply = _Reply(
                    503, "", f"{self._address} does not respond: {error or type(error).__name__}".encode(), 0.0
                )
            if 200 <= reply.status < 300:
                return reply
            wait = max(wait, reply.wait)
            if reply.status not in _RETRY or time.monotonic() + wait > deadline:
                raise ServiceError(reply.status if reply.content_type else None, reply.detail())
            time.sleep(wait)
            wait = min(2.0 * wait, _LONGEST_WAIT)

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> _Reply:
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        content, wait = response.read(), response.getheader("Retry-After", "0")
        return _Reply(
            response.status,
            response.getheader("Content-Type", "") or "none",
            content,
            float(wait) if wait.isdigit() else 0.0,
        )


def _write_backup(response: HTTPResponse, path: Path) -> Backup:
    """Write the body of a response to a new private file, and check that it is a complete database."""
    if response.status != 200:
        reply = _Reply(response.status, response.getheader("Content-Type", ""), response.read(), 0.0)
        raise ServiceError(response.status, reply.detail())
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        shutil.copyfileobj(response, file)
        file.flush()
        os.fsync(file.fileno())
        n_bytes, n_expected = file.tell(), int(response.getheader("Content-Length", "-1"))
    if n_bytes != n_expected:
        raise ServiceError(200, f"the backup has {n_expected:,} bytes, but only {n_bytes:,} arrived.")
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise ServiceError(200, f"the backup is damaged: {verdict}.")
        return Backup(n_bytes, int(database.execute("SELECT count(*) FROM detectors").fetchone()[0]))
    except sqlite3.DatabaseError as error:
        raise ServiceError(200, f"the backup is damaged: {error}.") from None
    finally:
        database.close()


def _path(name: str, *parts: str) -> str:
    return "/".join(["", "detectors", quote(name, safe=""), *parts])


def _rows(points: Any) -> list[Any]:
    """Return a list of rows; each row of a DataFrame (pandas or polars) becomes a dictionary by column name."""
    if hasattr(points, "to_dicts"):
        return points.to_dicts()
    if hasattr(points, "to_dict") and hasattr(points, "columns"):
        return points.to_dict(orient="records")
    return list(points)


def _encoded(body: Any) -> bytes:
    """Return a body as JSON, with null for missing values; raise ValueError or TypeError if JSON cannot express it."""
    try:
        return json.dumps(body, default=_plain, allow_nan=False).encode()
    except ValueError:  # it contains NaN, which becomes null, or an infinite number, which is refused
        plain = json.loads(json.dumps(body, default=_plain), parse_constant=_number_or_none)
        return json.dumps(plain, allow_nan=False).encode()


def _number_or_none(constant: str) -> float | None:
    return None if constant == "NaN" else float(constant)


def _plain(value: Any) -> Any:
    """Return a numpy array or number, a time, or a missing value of pandas as an object that `json` can write."""
    if type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{value!r:.100} is none of these")
