"""Routes for incidents: those of a detector, those of all detectors, and events as they happen."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from imondrian.service.http import schemas
from imondrian.service.http.listeners import Listeners
from imondrian.service.http.queries import incidents_of
from imondrian.service.http.routes.common import Integer, Name, handle_of, large_response, problems, registry_of
from imondrian.service.limits import Limits

router = APIRouter(tags=["incidents"])
_EVENT_STREAM = "text/event-stream"
_EVENT_ID = "^[0-9]{0,15}$"  # of ASCII digits; an empty header is the same as none


_MAX_INCIDENTS = Limits().incidents
_Limit = Annotated[Integer, Query(ge=1, le=_MAX_INCIDENTS, description="Maximum number of incidents.")]
_Open = Annotated[bool, Query(description="Only incidents that are open.")]


@router.get("/detectors/{name}/incidents", response_model=schemas.Incidents, responses=problems(404, 422, 503))
async def of_detector(
    request: Request,
    name: Name,
    limit: _Limit = _MAX_INCIDENTS,
    open: _Open = False,  # noqa: A002, FBT002
) -> Response:
    """Return the latest incidents of a detector: up to 64 of anomalies and 64 of missing data; open ones first.

    For a detector with a key, all open incidents and up to 256 closed ones, within the limit.
    """
    return await large_response(request, partial(incidents_of, [handle_of(request, name)], limit, only_open=open))


@router.get("/incidents", response_model=schemas.Incidents, responses=problems(422, 503))
async def of_all(
    request: Request,
    limit: _Limit = 100,
    open: _Open = False,  # noqa: A002, FBT002
) -> Response:
    """Return the latest incidents of all detectors: open ones first, then by time, latest first."""
    return await large_response(request, partial(incidents_of, registry_of(request).all(), limit, only_open=open))


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {_EVENT_STREAM: {"schema": {"type": "string"}}}}, **problems(422, 503)},
)
async def events(
    request: Request,
    last_event_id: Annotated[
        str | None, Header(pattern=_EVENT_ID, description="Begin after this event; by default, only new events.")
    ] = None,
    follow: Annotated[  # noqa: FBT002
        bool, Query(description="Wait for more events; if false, the response ends after the latest one.")
    ] = True,
) -> Response:
    """Send an event whenever an incident opens or closes, as server-sent events; the latest 10,000 are kept.

    The data of an event is JSON: `{"id": 7, "event": "opened", "time": 1769862600.0, "incident": {...}}`, with `event`
    "opened" or "closed", and the incident as in `GET /incidents`. The response begins with an id without data: that of
    the event after which it continues, by default the latest one. Comments are sent every 15 seconds if there are no
    events.
    """
    ending = getattr(request.state, "ending", None) or asyncio.Event()
    after = int(last_event_id) if last_event_id else None
    return _EventResponse(request.app.state.listeners, after, ending, follow=follow)


class _EventResponse(StreamingResponse):
    """The events for one listener, who is counted while the response is sent; 503 if there are too many listeners."""

    def __init__(self, listeners: Listeners, after: int | None, ending: asyncio.Event, *, follow: bool) -> None:
        stream = listeners.stream(after, ending, follow=follow)
        super().__init__(stream, media_type=_EVENT_STREAM, headers={"X-Accel-Buffering": "no"})
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listeners.place():
            await super().__call__(scope, receive, send)
