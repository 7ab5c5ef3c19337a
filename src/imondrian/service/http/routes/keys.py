"""Routes for the keys of a detector with a key: list and forget them."""

import json
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.convertors import StringConvertor, register_url_convertor

from imondrian.service.changes.journal import FORGET_KEY
from imondrian.service.changes.keyed_rows import MAX_KEY_LENGTH, checked_key
from imondrian.service.http import schemas
from imondrian.service.http.keyed_queries import Order, keys_of
from imondrian.service.http.routes.common import JSON, Integer, Name, handle_of, large_response, problems

router = APIRouter(prefix="/detectors/{name}/keys", tags=["keys"])
_MAX_KEYS = 1_000  # in a response
_MAX_SKIPPED = 2**53


class _AnyText(StringConvertor):
    """Matches the rest of a path, whatever it contains: a key may be empty, and may have slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", _AnyText())


@router.get("", response_model=schemas.Keys, responses=problems(404, 422, 503))
async def listed(
    request: Request,
    name: Name,
    search: Annotated[
        str, Query(max_length=MAX_KEY_LENGTH, description="Only keys that contain this text, ignoring case.")
    ] = "",
    order: Annotated[
        Order, Query(description="By latest surprise, highest first; by name; or by time, latest first.")
    ] = "surprise",
    limit: Annotated[Integer, Query(ge=1, le=_MAX_KEYS, description="Maximum number of keys.")] = 100,
    after: Annotated[Integer, Query(ge=0, le=_MAX_SKIPPED, description="Number of keys to skip.")] = 0,
) -> Response:
    """Return the keys of a detector with a key, and the figures of the latest row of each."""
    return await large_response(request, partial(keys_of, handle_of(request, name), search, order, after, limit))


@router.delete(
    "/{key:any_text}",
    response_model=schemas.Counted,
    openapi_extra={"parameters": [schemas.REQUEST_ID]},
    responses=problems(404, 422, 429, 503, 504, 507),
)
async def forget(
    request: Request, name: Name, key: Annotated[str, Path(max_length=MAX_KEY_LENGTH, examples=["web-1"])]
) -> Response:
    """Forget a key and its detector, and return how many rows the key had.

    The forest common to all keys keeps what it has learned. If a point with this key arrives later, the key starts
    again like a new one.
    """
    worker = handle_of(request, name).worker
    content = json.dumps(checked_key(key, "The key")).encode()
    worker.keys  # noqa: B018 (raises an error if the detector has no key)
    done = worker.submit(FORGET_KEY, content, 0, request.headers.get("idempotency-key"))
    reply = await request.app.state.futures.wrap(done)
    return Response(reply.content, reply.status, media_type=JSON)
