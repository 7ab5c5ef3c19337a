"""The one request that comes thousands of times a second, by the shortest way: POST /detectors/{name}/points.

The route stands in `routes.points` like all others, and OpenAPI tells it. But the way there, through routing,
dependencies and validation, takes longer than all that it does; so it is called here before.
"""

import re

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from imondrian.errors import ImondrianError
from imondrian.service.configuration import NAME
from imondrian.service.routes.points import learn
from imondrian.service.telling import told, told_nobody, told_nothing

_PATH = re.compile(f"/detectors/({NAME})/points")


class Posting:
    """Answers posts of points, and lets all else through."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a post of points."""
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await self._api(scope, receive, send)
            return
        scope["app"] = self._api
        request = Request(scope, receive)
        try:
            response = await learn(request, match[1])
        except ImondrianError as error:
            response = await told(request, error)
        except ClientDisconnect as error:
            response = await told_nobody(request, error)
        except Exception as error:  # noqa: BLE001 (as the last of the handlers does)
            response = await told_nothing(request, error)
        await response(scope, receive, send)
