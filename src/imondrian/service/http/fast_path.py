"""A shortcut to the route that is called thousands of times a second: POST /detectors/{name}/points.

The route is declared in `routes.points` like all others, and is part of the OpenAPI description. But routing,
dependencies and validation take longer than the work itself, so the function of the route is called directly here.
"""

import re

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from imondrian.base.errors import ImondrianError
from imondrian.service.changes.configuration import NAME
from imondrian.service.errors import (
    disconnected_response,
    error_response,
    internal_error_response,
    out_of_memory_response,
)
from imondrian.service.http.routes.points import learn

_PATH = re.compile(f"/detectors/({NAME})/points")


class FastPath:
    """Handles POST requests with points, and passes all other requests to the API."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await self._api(scope, receive, send)
            return
        scope["app"] = self._api
        request = Request(scope, receive)
        try:
            response = await learn(request, match[1])
        except ImondrianError as error:
            response = await error_response(request, error)
        except ClientDisconnect as error:
            response = await disconnected_response(request, error)
        except MemoryError as error:
            response = await out_of_memory_response(request, error)
        except Exception as error:  # noqa: BLE001 (catches everything, like the API's handler for Exception)
            response = await internal_error_response(request, error)
        await response(scope, receive, send)
