"""Routes for health, metrics and the page."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service.errors import NotFoundError
from imondrian.service.http.assets import gzipped, page_assets
from imondrian.service.http.queries import metrics_of
from imondrian.service.http.routes.common import problems, registry_of
from imondrian.service.http.schemas import Health

router = APIRouter(tags=["status"])


@router.get("/health", responses={503: {"model": Health}, **problems()})
async def health(request: Request, response: Response) -> Health:
    """Report whether data can be stored and all detectors work; list earlier damage and failed notifications."""
    registry = registry_of(request)
    failure = registry.writer.failure and await run_in_threadpool(registry.writer.retry)
    current = [*registry.problems(), *([] if failure is None else [str(failure)])]
    response.status_code = 503 if current else 200
    all_problems = [*registry.damage_reports, *current, *registry.notifier.problems()]
    shown = all_problems if request.state.is_trusted else []  # they contain names of detectors
    return Health(status="failing" if current else "ok", problems=shown)


router.head("/health", include_in_schema=False)(health)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **problems()})
async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    return Response(metrics_of(registry_of(request)), media_type="text/plain; version=0.0.4")


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """Return the page."""
    return await run_in_threadpool(_file, "index.html", request)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the page that lists all routes."""
    return await run_in_threadpool(_file, "docs.html", request)


@router.get("/static/{name}", include_in_schema=False)
async def static(name: str, request: Request) -> Response:
    """Return a file of the page."""
    return await run_in_threadpool(_file, name, request)


def _file(name: str, request: Request) -> Response:
    if name not in page_assets():
        raise NotFoundError(f"The page has no file {name[:100]!r}.")
    content, media_type, etag = page_assets()[name]
    headers = {"Cache-Control": "no-cache", "ETag": etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(gzipped(name), media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(content, media_type=media_type, headers=headers)
