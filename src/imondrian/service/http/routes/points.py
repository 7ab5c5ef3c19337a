"""Routes that learn, forget, score and explain points, and that return the latest rows."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service.changes.configuration import size_of
from imondrian.service.changes.journal import FORGET, entry_of_points
from imondrian.service.changes.keyed_rows import MAX_KEY_LENGTH, KeyedRows
from imondrian.service.changes.posted_rows import PostedRows
from imondrian.service.detectors.job_queue import NO_KEYS
from imondrian.service.detectors.registry import DetectorHandle
from imondrian.service.http import schemas
from imondrian.service.http.bodies import rows_of
from imondrian.service.http.keyed_queries import (
    KeyedExplainer,
    KeyedScorer,
    detectors_of,
    explanation_of_keyed_row,
    key_blocks,
    keyed_history_of,
    keyed_row_of,
    needed_key,
    refuse_key,
)
from imondrian.service.http.queries import (
    MAX_POINTS_ON_SHARED_COPY,
    explanation_of_row,
    explanations_of,
    history_of,
    scores_of,
)
from imondrian.service.http.routes.common import (
    JSON,
    Integer,
    Name,
    copy_slot,
    handle_of,
    json_response,
    key_slot,
    large_response,
    parse_body,
    problems,
    raise_if_disconnected,
    read_slot,
    registry_of,
)
from imondrian.service.limits import COPIES_OF_POINTS, PER_EXPLAINED_VALUE, PER_SCORED_ROW, Retention
from imondrian.stream.detector import StreamDetector

router = APIRouter(prefix="/detectors/{name}", tags=["points"])
history_router = APIRouter(prefix="/detectors/{name}/history", tags=["history"])
_FEW_POINTS = 100  # up to this number, no memory is reserved for the results
_FEW_VALUES = 100  # up to this number, no memory is reserved for their explanations
_BODY = {"requestBody": schemas.POINTS_BODY}
_BODY_AND_ID = _BODY | {"parameters": [schemas.REQUEST_ID]}


async def _change(
    request: Request, handle: DetectorHandle, kind: str, content: bytes, n_points: int, keys: frozenset[str] = NO_KEYS
) -> Response:
    """Learn or forget points, and wait until the change is on the disk and applied."""
    done = handle.worker.submit(kind, content, n_points, request.headers.get("idempotency-key"), keys)
    reply = await request.app.state.futures.wrap(done)
    return Response(reply.content, reply.status, media_type=JSON)


async def _rows(
    request: Request, handle: DetectorHandle, max_points: int, *, is_change: bool = False
) -> PostedRows | KeyedRows:
    """Return the rows of a body."""
    content_type = request.headers.get("content-type", JSON)
    parse = partial(rows_of, content_type=content_type, row_format=handle.row_format, max_points=max_points)
    return await parse_body(request, parse, is_change=is_change)


@router.post(
    "/points",
    response_model=schemas.Results,
    openapi_extra=_BODY_AND_ID,
    responses=problems(404, 413, 422, 429, 503, 504, 507),
)
async def learn(request: Request, name: Name) -> Response:
    """Score points, report which are anomalies, and learn them; they are on the disk before the response is sent.

    A request that is repeated with the same Idempotency-Key gets the same response, and nothing is learned twice. This
    holds as long as the detector stores the reply: it stores the last 10,000 replies, or fewer if they exceed 64 MiB,
    or if the replies of all detectors exceed an eighth of `--max-memory` (and 64 MiB).
    """
    handle = handle_of(request, name)
    return await _change(request, handle, *await _entry(request, handle))


async def _entry(request: Request, handle: DetectorHandle) -> tuple[str, bytes, int, frozenset[str]]:
    """Return the kind and the content of the journal entry that learns the rows of a body, their number and keys.

    Memory is reserved for everything that follows, because a change is not refused once it is journalled.
    """
    rows = await _rows(request, handle, handle.max_points, is_change=True)
    if len(rows.points) > _FEW_POINTS:
        request.state.memory.reserve(PER_SCORED_ROW * len(rows.points) + COPIES_OF_POINTS * rows.points.nbytes)
    keys = frozenset(rows.keys) if isinstance(rows, KeyedRows) else NO_KEYS
    return *entry_of_points(rows), len(rows.points), keys


@router.delete(
    "/points",
    response_model=schemas.Counted,
    openapi_extra=_BODY_AND_ID,
    responses=problems(404, 413, 422, 429, 503, 504, 507),
)
async def forget(request: Request, name: Name) -> Response:
    """Forget points as if the window had never held them; the threshold and the drifts still count their scores."""
    handle = handle_of(request, name)
    refuse_key(handle, "single points cannot be forgotten; forget a key instead (DELETE /detectors/{name}/keys/{key})")
    points = (await _rows(request, handle, handle.max_points, is_change=True)).points
    return await _change(request, handle, FORGET, points.tobytes(), len(points))


@router.post(
    "/scores",
    response_model=schemas.Scores | schemas.KeyedScores,
    openapi_extra=_BODY,
    responses=problems(404, 413, 422, 503),
)
async def score(request: Request, name: Name) -> Response:
    """Score points without learning them, and without waiting for points that are being learned."""
    handle = handle_of(request, name)
    rows = await _rows(request, handle, handle.max_points)
    if isinstance(rows, KeyedRows):
        scorer = KeyedScorer(rows)
        await _read_keys(request, handle, rows, scorer)
        return await large_response(request, scorer.response)
    async with (copy_slot if len(rows.points) > MAX_POINTS_ON_SHARED_COPY else read_slot)(request, handle):
        return await json_response(request, partial(scores_of, handle, rows))


@router.post(
    "/explanations",
    response_model=schemas.Explanations,
    openapi_extra=_BODY,
    responses=problems(404, 413, 422, 503),
)
async def explain(request: Request, name: Name) -> Response:
    """Divide the score of each point among the features, without learning the points."""
    handle = handle_of(request, name)
    rows = await _rows(request, handle, handle.max_explained_points)
    n_values = len(rows.points) * size_of(handle.record.configuration).n_values
    n_bytes = PER_EXPLAINED_VALUE * n_values if n_values > _FEW_VALUES else 0
    if isinstance(rows, KeyedRows):
        request.state.memory.reserve(n_bytes)  # until the response is sent: explanations are made before it
        explainer = KeyedExplainer(rows, handle.record.configuration["features"])
        await _read_keys(request, handle, rows, explainer)
        return await large_response(request, explainer.response)
    make = partial(explanations_of, handle, rows)
    if len(rows.points) <= MAX_POINTS_ON_SHARED_COPY:
        return await large_response(request, make, read_slot(request, handle), n_bytes)
    async with copy_slot(request, handle):
        return await large_response(request, make, n_bytes=n_bytes)


async def _read_keys(
    request: Request, handle: DetectorHandle, rows: KeyedRows, reader: KeyedScorer | KeyedExplainer
) -> None:
    """Pass the detectors of the keys of points to a reader, a few at a time.

    While the detector saves a snapshot, its keys cannot be read. The request then waits without holding one of the
    slots that reads of all detectors share, and only one request of each detector occupies a thread.
    """

    def read(detectors: list[StreamDetector], positions: Iterable[list[int]]) -> None:
        for detector, found in zip(detectors, positions, strict=True):
            reader.add(detector, found)

    blocks = key_blocks(handle, rows, registry_of(request).limits)
    async with key_slot(request, handle, max(map(len, blocks), default=0)):
        for block in blocks:
            await raise_if_disconnected(request)
            detectors = await run_in_threadpool(detectors_of, handle, block)
            async with request.app.state.copy_limit.slot():
                await run_in_threadpool(read, detectors, block.values())


_MAX_INDEX = 2**53
_MAX_ROWS = Retention().history
_Key = Annotated[
    str | None,
    Query(max_length=MAX_KEY_LENGTH, description="For a detector with a key: the key whose rows are returned."),
]


@history_router.get("", response_model=schemas.History, responses=problems(404, 422, 503))
async def history(
    request: Request,
    name: Name,
    after: Annotated[Integer, Query(ge=-1, le=_MAX_INDEX, description="Only rows after this one.")] = -1,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_ROWS, description="Maximum number of rows; the latest are returned.")
    ] = _MAX_ROWS,
    key: _Key = None,
) -> Response:
    """Return the latest rows and their scores; of a detector with a key, the latest 64 rows of one key."""
    handle, key = handle_of(request, name), needed_key(handle_of(request, name), key)
    if key is None:
        return await large_response(request, partial(history_of, handle, after, limit))
    return await large_response(request, partial(keyed_history_of, registry_of(request), handle, key, after, limit))


@history_router.get("/{index}", response_model=schemas.ExplainedRow, responses=problems(404, 422, 503))
async def row(
    request: Request, name: Name, index: Annotated[Integer, Path(ge=0, le=_MAX_INDEX)], key: _Key = None
) -> Response:
    """Explain the score of one of the latest rows."""
    handle = handle_of(request, name)
    needed_key(handle, key)
    if key is None:
        async with copy_slot(request, handle):
            return await json_response(request, partial(explanation_of_row, handle, index))
    async with key_slot(request, handle):
        found = await run_in_threadpool(keyed_row_of, registry_of(request), handle, key, index)
        async with request.app.state.copy_limit.slot():
            return await json_response(request, partial(explanation_of_keyed_row, handle, found))
