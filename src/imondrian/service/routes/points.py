"""Points: learned, forgotten, scored, explained."""

from functools import partial

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.engine.jit import Array
from imondrian.service import schemas
from imondrian.service.asking import FEW, explained, scored
from imondrian.service.bodies import points_of
from imondrian.service.entries import FORGET, POINTS, Answer
from imondrian.service.registry import Known
from imondrian.service.routes.common import JSON, Name, asking, copying, known_of, large_answer, problems, registry_of

router = APIRouter(prefix="/detectors/{name}", tags=["points"])
_SMALL = 2**14  # bytes of a body that is read at once, without asking another thread
_BODY = {"requestBody": schemas.POINTS_BODY}
_BODY_AND_ID = _BODY | {"parameters": [schemas.REQUEST_ID]}


async def _done(request: Request, name: str, kind: str) -> Response:
    """Have points learned or forgotten, and wait until that is on the disk and done."""
    known = known_of(request, name)
    points = await _points(request, known, registry_of(request).limits.points_per_request)
    done = known.live.submit(kind, points.tobytes(), len(points), request.headers.get("idempotency-key"))
    answer: Answer = await request.app.state.waiting.result_of(done)
    return Response(answer.content, answer.status, media_type=JSON)


async def _points(request: Request, known: Known, n_most: int) -> Array:
    """Read the points of a body, in another thread if they are many."""
    body, kind = await request.body(), request.headers.get("content-type", JSON)
    read = partial(points_of, body, kind, known.kept.configuration["features"], n_most)
    if len(body) < _SMALL:
        return read()
    async with request.app.state.parsing.turn():
        return await run_in_threadpool(read)


@router.post(
    "/points",
    response_model=schemas.Results,
    openapi_extra=_BODY_AND_ID,
    responses=problems(404, 413, 422, 429, 503, 507),
)
async def learn(request: Request, name: Name) -> Response:
    """Score points, tell which are anomalies, then learn them; what is answered is on the disk.

    A request that is sent again with the same Idempotency-Key gets the same answer, and nothing is learned twice.
    """
    return await _done(request, name, POINTS)


@router.delete(
    "/points",
    response_model=schemas.Counted,
    openapi_extra=_BODY_AND_ID,
    responses=problems(404, 413, 422, 429, 503, 507),
)
async def forget(request: Request, name: Name) -> Response:
    """Forget points of the window, as if they had never been there."""
    return await _done(request, name, FORGET)


@router.post("/scores", openapi_extra=_BODY, responses=problems(404, 413, 422, 503))
async def score(request: Request, name: Name) -> schemas.Scores:
    """Score points without learning them; does not wait for those that are being learned."""
    known = known_of(request, name)
    points = await _points(request, known, registry_of(request).limits.points_per_request)
    async with (copying if len(points) > FEW else asking)(request, known):
        return await run_in_threadpool(scored, known, points)


@router.post(
    "/explanations",
    response_model=schemas.Explanations,
    openapi_extra=_BODY,
    responses=problems(404, 413, 422, 503),
)
async def explain(request: Request, name: Name) -> Response:
    """Divide the scores of points among the features; nothing is learned."""
    known = known_of(request, name)
    limits = registry_of(request).limits
    n_most = min(limits.explained_points, limits.explained_values // len(known.kept.configuration["features"]))
    points = await _points(request, known, n_most)
    make = partial(explained, known, points)
    if len(points) <= FEW:
        return await large_answer(request, make, asking(request, known))
    async with copying(request, known):
        return await large_answer(request, make)
