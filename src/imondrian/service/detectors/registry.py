"""All detectors of the service by name: create, find and remove them."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from imondrian.base.errors import ImondrianError, StoreError
from imondrian.service.capacity import RequestMemory
from imondrian.service.changes.configuration import (
    checked_configuration,
    checked_name,
    checked_size,
    is_keyed,
    is_same_detector,
    is_valid_name,
    max_explained_points_of,
    max_points_of,
    name_bytes,
)
from imondrian.service.changes.journal import NEW_MODEL, Entry, checked_request_id
from imondrian.service.changes.keyed_rows import KeyedFormat
from imondrian.service.changes.posted_rows import RowFormat
from imondrian.service.changes.replies import ReplyMemory
from imondrian.service.changes.settings import CHANGEABLE
from imondrian.service.delivery.event_feed import EventFeed
from imondrian.service.delivery.notifier import Notifier, use_receivers
from imondrian.service.delivery.receivers import Receiver
from imondrian.service.detectors.applied_state import AppliedState
from imondrian.service.detectors.key_files import (
    KeyFile,
    KeyFiles,
    attached_key_files,
    check_number_of_keyed,
    restore_key_files,
)
from imondrian.service.detectors.keyed_state import new_keyed_state
from imondrian.service.detectors.recovery import Folder, recover, replay
from imondrian.service.detectors.remover import Remover
from imondrian.service.detectors.state import new_state
from imondrian.service.detectors.timer import Timer
from imondrian.service.detectors.uploads import configuration_in, size_in_model
from imondrian.service.detectors.worker import DetectorWorker
from imondrian.service.errors import ConflictError, NotFoundError, NotRecoveredError, StorageError, UnavailableError
from imondrian.service.limits import REPLY_SHARE, Limits, Retention
from imondrian.service.storage.event_table import Silence
from imondrian.service.storage.store import Store, StoredDetector
from imondrian.service.storage.writer import Writer
from imondrian.stream.stream_parameters import current_threshold

_LOG = logging.getLogger("imondrian.service")
T = TypeVar("T")


class DetectorHandle(NamedTuple):
    """A detector of the service: its row in the store, its worker, and what its rows must look like."""

    record: StoredDetector
    worker: DetectorWorker
    row_format: RowFormat | KeyedFormat
    max_points: int  # in a request that learns, scores or forgets
    max_explained_points: int  # in a request

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration, with the settings that were changed."""
        return {**self.record.configuration, **self.worker.settings}

    @property
    def n_open_incidents(self) -> int:
        """The number of incidents that are open."""
        return self.worker.incidents.n_open + self.worker.is_silent

    @property
    def n_silences(self) -> int:
        """The number of incidents of missing data."""
        silences = self.worker.silences
        return silences[-1].number + 1 if silences else 0


class _SetAside(NamedTuple):
    """A detector that could not be recovered; its data is left unchanged for the next start."""

    id: int
    reason: str


class Registry:
    """All detectors in a folder; they are recovered when it is opened.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    limits : Limits, optional
        The limits of requests and detectors.
    retention : Retention, optional
        How much is stored for each detector.
    receivers : sequence of Receiver, optional
        Who is notified of incidents.
    report : callable, optional
        Called with a text for users before each detector is recovered.

    Attributes
    ----------
    damage_reports : list of str
        What was damaged when the folder was opened.
    writer : Writer
        The thread that writes to the store.
    feed : EventFeed
        Openings and closings of incidents, as they are stored.
    notifier : Notifier
        Sends these openings and closings to the receivers.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        retention: Retention | None = None,
        receivers: Sequence[Receiver] = (),
        report: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.limits, self.retention = limits or Limits(), retention or Retention()
        self._files = KeyFiles(folder)
        store = Store(folder)
        replies = ReplyMemory(max(self.limits.total_bytes // REPLY_SHARE, self.retention.reply_bytes))
        self._folder = Folder(store, self._files, self.limits, self.retention, replies)
        self.damage_reports = list(store.problems)
        self._handles, self._set_aside = dict[str, DetectorHandle](), dict[str, _SetAside]()
        self._n_bytes_being_created = 0  # changed by one thread at a time
        self._removing = set[int]()  # ids of detectors that are set aside, while their removal begins
        try:
            use_receivers(store, receivers)
            self._unrestored_files = restore_key_files(store, self._files)  # errors by id; such detectors are set aside
            detectors = [id_ for id_, _ in store.detectors()]
            self.damage_reports += self._files.remove_others(
                detectors, store.last_detector_id(), is_damaged=bool(store.problems)
            )
            self._recover(store, report)
        except BaseException:
            store.close()
            raise
        self._ending_workers: set[DetectorWorker] = set()  # of removed detectors; their threads may still run
        self._store, self._create_lock = store, threading.Lock()
        self.notifier = Notifier(receivers, self.writer, self.feed, self.retention)
        self._timer = Timer(self._check, self.retention.silence_check_seconds)

    def all(self) -> list[DetectorHandle]:
        """Return the detectors, oldest first, without those set aside."""
        return list(self._handles.values())

    def backup(self) -> tuple[IO[bytes], int]:
        """Return an open copy of everything stored, and its size in bytes; raise StorageError if there is no space.

        Detectors with a key save no snapshots meanwhile: their files stay as they are, and all later entries are in the
        journal.
        """
        with self._files.lock:
            return self._store.backup(attached_key_files(self._files, self._opened_files(), self._set_aside_ids()))

    def _opened_files(self) -> dict[int, KeyFile]:
        """Return the files of detectors with a key that are in use; the file of a deleted detector may be closed."""
        files = {each.record.id: each.worker.keys.file for each in self.all() if each.worker.is_keyed}
        return {detector: file for detector, file in files.items() if not file.is_closed}

    def _set_aside_ids(self) -> list[int]:
        return [aside.id for aside in self._set_aside.copy().values() if aside.id not in self._unrestored_files]

    @property
    def n_set_aside(self) -> int:
        """Number of detectors that could not be recovered."""
        return len(self._set_aside)

    def get(self, name: str) -> DetectorHandle:
        """Return a detector; raise NotFoundError if there is none, NotRecoveredError if it is set aside."""
        handle, aside = self._handles.get(name), self._set_aside.get(name)
        if aside is not None:
            raise NotRecoveredError(aside.reason)
        if handle is None:
            raise NotFoundError(f"There is no detector {name[:100]!r}.")
        return handle

    def create(self, name: str, settings: dict[str, Any]) -> tuple[DetectorHandle, bool]:
        """Create a detector, and return it and True; or return an existing one with the same configuration and False.

        Raises
        ------
        ConflictError
            If the existing one has another configuration, or there are too many detectors, or they would need too much
            memory.
        """
        with self._create_lock:
            handle = self._existing(name)
            if handle is None:
                configuration, n_bytes = checked_configuration(settings, self.limits)
                if is_keyed(configuration):
                    check_number_of_keyed(sum(each.is_keyed for each in self._running_workers()), self.limits)
                with self._reserved(n_bytes + name_bytes(configuration)):
                    return self._add(name, configuration, []), True
            if not self._is_configured_as(handle, settings):
                raise ConflictError(f"A detector {name!r} with another configuration exists.")
            return handle, False

    def _is_configured_as(self, handle: DetectorHandle, settings: dict[str, Any]) -> bool:
        """Return True if a detector has these settings, or had them when it was created.

        A client may repeat its request after settings were changed. When a detector was created by an older version,
        `missing` had another default, and a number as threshold was a share of the points.
        """
        if settings.get("key") != handle.configuration["key"]:
            return False
        current = {name: handle.configuration[name] for name in ("missing", *CHANGEABLE)}
        configuration, _ = checked_configuration({**current, **settings}, self.limits)
        same = [handle.configuration, handle.record.configuration]
        if handle.record.is_former and "threshold" in settings:
            same += [
                {**each, "threshold": settings["threshold"]} for each in same if _is_former_threshold(each, settings)
            ]
        return any(is_same_detector(each, configuration) for each in same)

    def restore(
        self, name: str, content: bytes, request: str | None, memory: RequestMemory | None = None
    ) -> tuple[DetectorHandle, bool]:
        """Create a detector from a model file and return it and True; if one exists, return it unchanged, and False."""
        checked_request_id(request, self.limits)
        handle = self._handles.get(name)
        if handle is not None:  # no need to wait for the creation of other detectors
            return handle, False
        with self._create_lock:
            handle = self._existing(name)
            if handle is not None:
                return handle, False
            n_bytes = checked_size(size_in_model(content), self.limits)
            with self._reserved(n_bytes):  # before the detector is read
                configuration = configuration_in(content, self.limits, memory)
                with self._reserved(name_bytes(configuration)):
                    entry = Entry(1, NEW_MODEL, content, request, time.time())
                    return self._add(name, configuration, [entry]), True

    def remove(self, name: str) -> None:
        """Remove a detector, and wait until all its data is deleted."""
        self.start_removal(name).result()

    def start_removal(self, name: str) -> Future[None]:
        """Remove a detector; the future completes when all its data is deleted, or the rest is left to a later attempt.

        The removal does not wait for queued requests: they are refused.
        """
        aside = self._set_aside.get(name)
        if aside is not None:
            if aside.id in self._removing:
                raise UnavailableError("The detector is being removed.")
            self._removing.add(aside.id)
            first = self._remover.start(aside.id)
            started = _then(first, lambda: self._forget_set_aside(name))
            first.add_done_callback(lambda _: self._removing.discard(aside.id))  # after it is forgotten
            return self._remover.finish(aside.id, started)
        handle = self.get(name)
        started = _then(handle.worker.remove(), lambda: self._forget(name))
        return self._remover.finish(handle.record.id, started, handle.worker.incidents.current)

    def _forget(self, name: str) -> None:
        """Drop the handle of a deleted detector; called by the writer, which must not wait for long."""
        handle = self._handles.pop(name)
        self._ending_workers.add(handle.worker)
        self._folder.reply_memory.remove(handle.record.id)

    def _forget_set_aside(self, name: str) -> None:
        """Drop a deleted detector that was set aside; its file is deleted now, or at the next start."""
        aside = self._set_aside.pop(name, None)
        if aside is not None:
            self._files.remove(aside.id, is_waiting=False)  # the writer must not wait

    def problems(self) -> list[str]:
        """Return the current problems, each preceded by the name of its detector."""
        failing = [
            f"{each.record.name}: {text}" for each in self.all() for text in each.worker.problems.copy().values()
        ]
        return [*(f"{name}: {aside.reason}" for name, aside in self._set_aside.copy().items()), *failing]

    def _check(self) -> None:
        """Open incidents for detectors without data, and try failed removals again; called by the timer."""
        self._remover.retry()
        for handle in self.all():
            with suppress(StorageError):  # the service is shutting down, or the next check tries again
                handle.worker.open_silence_if_due()

    def close(self, seconds: float | None = None) -> None:
        """Apply queued requests, save snapshots, and close the store.

        What is not applied and saved within `seconds` is in the journal, and is replayed at the next start.
        """
        deadline = None if seconds is None else time.monotonic() + seconds

        def seconds_left() -> float | None:
            return None if deadline is None else max(deadline - time.monotonic(), 0.0)

        self._timer.close()
        timeout = seconds_left()
        is_locked = self._create_lock.acquire(timeout=-1 if timeout is None else timeout)
        try:
            for handle in self.all():
                handle.worker.stop()
            late = [handle.record.name for handle in self.all() if not handle.worker.wait_for_end(seconds_left())]
            if late:
                _LOG.warning(
                    "There was no time for a snapshot of %s: the next start replays the journal.", ", ".join(late)
                )
            self.notifier.close()
            self.writer.close()
            self._store.close()
        finally:
            if is_locked:
                self._create_lock.release()

    # -- recovery -----------------------------------------------------------------------------------------------

    def _recover(self, store: Store, report: Callable[[str], None]) -> None:
        """Recover all detectors, before the writer starts; set aside those that cannot be recovered."""
        found, detectors, n_keyed = [], store.detectors(), 0
        names = {name for _, name in detectors}
        for i, (id_, name) in enumerate(detectors, 1):
            report(f"recovering detector {i} of {len(detectors)}, {name!r:.100}")
            with self._set_aside_on_error(id_, self._usable_name(id_, name, names)):
                self._check_stored_name(name)
                if id_ in self._unrestored_files:
                    raise self._unrestored_files[id_]
                record, state, problems = recover(self._folder, id_, n_keyed)
                n_keyed += is_keyed(record.configuration)
                self.damage_reports += problems
                found.append((record, state, store.events.silences(id_)))
        unfinished = store.removals.unfinished()
        self.writer = Writer(store)
        self.feed = EventFeed(self.writer)
        self._remover = Remover(self.writer, self.feed)
        for id_ in unfinished:
            self._remover.resume(id_)
        for record, state, silences in found:
            with self._set_aside_on_error(record.id, record.name):
                self._handles[record.name] = self._handle(record, state, silences)

    def _check_stored_name(self, name: str | None) -> None:
        if name is None or not is_valid_name(name, self.limits):
            found = "not text" if name is None else repr(name[:100])
            raise StorageError(f"The name of the detector is damaged: it is {found}.")

    def _usable_name(self, id_: int, name: str | None, names: set[str | None]) -> str:
        """Return the name of a detector, or a substitute for clients if it is damaged."""
        if name is not None and is_valid_name(name, self.limits):
            return name
        substitute = f"damaged-{id_}"
        while substitute in names:
            substitute += "-"
        return substitute

    @contextmanager
    def _set_aside_on_error(self, id_: int, name: str) -> Iterator[None]:
        """Set a detector aside if an error is raised, so that the others work."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (the others must be recovered after any error)
            self._folder.reply_memory.remove(id_)
            is_ours = isinstance(error, ImondrianError)
            _LOG.error("The detector %r could not be recovered.", name, exc_info=None if is_ours else error)
            reason = str(error) if is_ours else f"{type(error).__name__} {error}".strip()
            reason = reason.replace(f"{self._files.folder}{os.sep}", "")  # clients need not know where the files are
            self._set_aside[name] = _SetAside(
                id_,
                "The detector could not be recovered when the service started, and is set aside with all its data until"
                f" the next start: {reason}",
            )

    # -- creation -----------------------------------------------------------------------------------------------

    def _existing(self, name: str) -> DetectorHandle | None:
        """Return the detector of that name, or None if there is none and it can be created."""
        checked_name(name, self.limits)
        aside, handle = self._set_aside.get(name), self._handles.get(name)
        if aside is not None:
            raise NotRecoveredError(aside.reason)
        if handle is not None:
            if handle.worker.is_being_removed:
                raise UnavailableError("The detector is being removed.")
            return handle
        n_detectors = len(self._handles) + len(self._set_aside)
        if n_detectors >= self.limits.detectors:
            raise ConflictError(f"There are {n_detectors} detectors already, the maximum number allowed.")
        return None

    def _running_workers(self) -> list[DetectorWorker]:
        """Return the workers of all detectors, including removed ones whose threads have not ended."""
        self._ending_workers -= {worker for worker in self._ending_workers.copy() if worker.wait_for_end(0.0)}
        return [*(handle.worker for handle in self.all()), *self._ending_workers.copy()]

    def _bytes_left(self, worker: DetectorWorker | None = None) -> int:
        """Return how much memory may still be used by all detectors or, given that of all others, by one detector."""
        others = (each.n_bytes for each in self._running_workers() if each is not worker)
        return self.limits.total_bytes - sum(others) - self._n_bytes_being_created

    @contextmanager
    def _reserved(self, n_bytes: int) -> Iterator[None]:
        """Check that there is memory for a detector, and count it while the detector is created."""
        self._check_memory(n_bytes)
        self._n_bytes_being_created += n_bytes
        try:
            yield
        finally:
            self._n_bytes_being_created -= n_bytes

    def _check_memory(self, n_bytes: int) -> None:
        n_bytes_left = self._bytes_left()
        if n_bytes > n_bytes_left:
            n_needed = self.limits.total_bytes - n_bytes_left + n_bytes
            raise ConflictError(
                f"All detectors together would need {n_needed} bytes, but at most"
                f" {self.limits.total_bytes} are allowed (imondrian serve --max-memory)."
            )

    def _add(self, name: str, configuration: dict[str, Any], entries: list[Entry]) -> DetectorHandle:
        """Store a new detector and its first journal entries in one transaction, then apply the entries."""
        created = time.time()

        def insert(store: Store) -> int:
            id_ = store.add_detector(name, configuration, created)
            if entries:
                store.add_entries(id_, entries)
            return id_

        id_ = self.writer.write(insert)
        record = StoredDetector(id_, name, configuration, created)
        try:
            self._handles[name] = self._handle(record, self._initial_state(record, entries))
        except StoreError:
            self._undo_creation(record)
            raise StorageError(
                "The file for the keys of the detector could not be created: is the disk full?"
            ) from None
        except BaseException:
            self._undo_creation(record)
            raise
        return self._handles[name]

    def _undo_creation(self, record: StoredDetector) -> None:
        """Remove a detector that could not be started; if the disk is too full even for that, set it aside."""
        try:
            self._remover.remove(record.id).result()
        except StorageError as error:
            reason = f"The detector could not be created, and must be removed: {error}"
            self._set_aside[record.name] = _SetAside(record.id, reason)
        self._files.remove(record.id)
        self._folder.reply_memory.remove(record.id)

    def _handle(
        self, record: StoredDetector, state: AppliedState, silences: tuple[Silence, ...] = ()
    ) -> DetectorHandle:
        """Start the worker of a detector."""
        worker = DetectorWorker(
            record, state, self.writer, self.feed, silences, self.limits, self.retention, self._bytes_left
        )
        of_rows = KeyedFormat if is_keyed(record.configuration) else RowFormat
        row_format = of_rows.of(record.configuration, self.limits, self.retention)
        max_points = max_points_of(record.configuration, self.limits)
        return DetectorHandle(
            record, worker, row_format, max_points, max_explained_points_of(record.configuration, self.limits)
        )

    def _initial_state(self, record: StoredDetector, entries: list[Entry]) -> AppliedState:
        if is_keyed(record.configuration):
            return new_keyed_state(record, self._files, self._folder.new_replies(record.id))
        state, error = replay(new_state(record, self.retention, self._folder.new_replies(record.id)), entries)
        if error is not None:
            raise error
        return state


def _then(first: Future[T], action: Callable[[], Any]) -> Future[T]:
    """Return a future with the result of `first` that completes after `action`, or fails with the error of either."""
    both = Future[T]()

    def follow(done: Future[T]) -> None:
        try:
            result = done.result()
            action()
        except BaseException as error:  # noqa: BLE001 (whoever waits for the future must always get a response)
            both.set_exception(error)
        else:
            both.set_result(result)

    first.add_done_callback(follow)
    return both


def _is_former_threshold(configuration: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return True if the threshold in `settings`, as read by versions without incidents, is that of `configuration`."""
    return bool(current_threshold(settings["threshold"]) == configuration["threshold"])
