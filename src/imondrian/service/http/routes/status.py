"""Routes for the health of the service, and for metrics."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service.http.metrics import metrics_of
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
