"""How the service is, for people and for programs; and its page."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service.assets import gzipped, page_assets
from imondrian.service.errors import NotFoundError
from imondrian.service.queries import metrics_of
from imondrian.service.routes.common import problems, registry_of
from imondrian.service.schemas import Health

router = APIRouter(tags=["status"])


@router.get("/health", responses={503: {"model": Health}, **problems()})
async def health(request: Request, response: Response) -> Health:
    """Tell whether what is sent can be kept, and what was damaged when the service started."""
    registry = registry_of(request)
    failure = registry.writer.failure and await run_in_threadpool(registry.writer.retry)
    present = [*registry.complaints(), *([] if failure is None else [str(failure)])]
    response.status_code = 503 if present else 200
    told = [*registry.damage_reports, *present] if request.state.is_trusted else []  # which name detectors
    return Health(status="failing" if present else "ok", complaints=told)


router.head("/health", include_in_schema=False)(health)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **problems()})
async def metrics(request: Request) -> Response:
    """Give figures for Prometheus."""
    return Response(metrics_of(registry_of(request)), media_type="text/plain; version=0.0.4")


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """Give the page."""
    return await run_in_threadpool(_file, "index.html", request)


@router.get("/static/{name}", include_in_schema=False)
async def static(name: str, request: Request) -> Response:
    """Give a file of the page."""
    return await run_in_threadpool(_file, name, request)


def _file(name: str, request: Request) -> Response:
    if name not in page_assets():
        raise NotFoundError("There is no such file.")
    content, media_type, tag = page_assets()[name]
    headers = {"Cache-Control": "no-cache", "ETag": tag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(gzipped(name), media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(content, media_type=media_type, headers=headers)
