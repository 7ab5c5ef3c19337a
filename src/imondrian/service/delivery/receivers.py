"""Check the HTTP addresses of receivers of notifications, and sign and send events to them.

The operator gives the addresses. Redirects are not followed. Of a response, only the status and the header Retry-After
are used.
"""

import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

import imondrian
from imondrian.base.errors import InvalidInputError
from imondrian.service.storage.event_table import StoredEvent

CONNECT_SECONDS, READ_SECONDS, TOTAL_SECONDS = 5.0, 10.0, 20.0
_MAX_URL_LENGTH = 2_048
_LONGEST_WAIT = 3_600.0  # seconds that a receiver may ask for with the header Retry-After
EVENT_HEADER, TIMESTAMP_HEADER = "X-Imondrian-Event", "X-Imondrian-Timestamp"
SIGNATURE_HEADER = "X-Imondrian-Signature"


class Receiver(NamedTuple):
    """Where notifications are sent."""

    scheme: str
    host: str
    port: int | None
    path: str  # with the query; may contain secrets, so it is never shown or stored
    key: str  # identifies the receiver in the store
    label: str  # shown to users and in metrics
    secret: bytes | None  # for signatures


def receivers_of(urls: Iterable[str], secret: bytes | None = None) -> list[Receiver]:
    """Return the receivers with these addresses; raise InvalidInputError if one is invalid or appears twice.

    Parameters
    ----------
    urls : iterable of str
        Addresses such as "https://example.org/hooks".
    secret : bytes, optional
        The key for signatures; without one, notifications are not signed.
    """
    receivers: list[Receiver] = []
    for url in urls:
        receiver = _receiver_of(url, secret)
        if receiver.key in (each.key for each in receivers):
            raise InvalidInputError(f"The receiver of notifications {receiver.label} is given twice.")
        n_same = sum(each.label.split(" ")[0] == receiver.label for each in receivers)
        receivers.append(receiver._replace(label=f"{receiver.label} ({n_same + 1})") if n_same else receiver)
    return receivers


def _receiver_of(url: str, secret: bytes | None) -> Receiver:
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError:
        raise _invalid(url) from None
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _MAX_URL_LENGTH
    if not is_plain or parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise _invalid(url)
    if "@" in parts.netloc:
        raise InvalidInputError("The address of a receiver of notifications must not contain a user name.")
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    key = hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
    return Receiver(parts.scheme, parts.hostname, port, path, key, f"{parts.scheme}://{parts.netloc}", secret)


def _invalid(url: str) -> InvalidInputError:
    return InvalidInputError(
        f"A receiver of notifications must be a URL such as https://example.org/hooks, but is {url!r:.200}."
    )


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the signature of a notification: HMAC-SHA256 over the timestamp, a dot and the body."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Answer(NamedTuple):
    """What a receiver answered."""

    status: int
    wait: float  # seconds, from the header Retry-After

    @property
    def is_success(self) -> bool:
        """Whether the receiver has accepted the notification."""
        return 200 <= self.status < 300

    @property
    def concerns_all(self) -> bool:
        """Whether other notifications to the same receiver would probably fail, too."""
        return self.status in (401, 403, 404, 408, 410, 429) or self.status >= 500


class Delivery:
    """One attempt to send an event to a receiver.

    The attempt is aborted after `TOTAL_SECONDS` or, if it is still connecting then, when the connection is made.
    """

    def __init__(self, receiver: Receiver) -> None:
        connection_type = HTTPSConnection if receiver.scheme == "https" else HTTPConnection
        self._connection = connection_type(receiver.host, receiver.port, timeout=CONNECT_SECONDS)
        self._receiver, self._is_aborted = receiver, False

    def send(self, event: StoredEvent) -> Answer:
        """Send an event; raise OSError or HTTPException if there is no valid answer in time."""
        watchdog = threading.Timer(TOTAL_SECONDS, self.abort)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._connection.connect()
            if self._is_aborted:  # while the name was resolved, or several addresses were tried
                raise TimeoutError("connecting took too long")
            self._connection.sock.settimeout(READ_SECONDS)
            body = event.as_json().encode()
            self._connection.request("POST", self._receiver.path, body, self._headers(event, body))
            return _answer(self._connection.getresponse())
        finally:
            watchdog.cancel()
            self._connection.close()

    def abort(self) -> None:
        """End the attempt, from another thread."""
        self._is_aborted = True
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _headers(self, event: StoredEvent, body: bytes) -> dict[str, str]:
        timestamp, secret = str(int(time.time())), self._receiver.secret
        return {
            "Content-Type": "application/json",
            "User-Agent": f"imondrian/{imondrian.__version__}",
            "Connection": "close",
            EVENT_HEADER: str(event.id),
            TIMESTAMP_HEADER: timestamp,
            **({} if secret is None else {SIGNATURE_HEADER: signature(secret, timestamp, body)}),
        }


def _answer(response: HTTPResponse) -> Answer:
    return Answer(response.status, _seconds_to_wait(response.getheader("Retry-After", "0")))


def _seconds_to_wait(header: str) -> float:
    """Return the seconds in a Retry-After header: a number or a date; 0 if it is invalid."""
    if header.isdecimal() and header.isascii():
        return min(float(header), _LONGEST_WAIT)
    try:
        seconds = parsedate_to_datetime(header).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_WAIT)
