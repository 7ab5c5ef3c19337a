"""Model files: a detector downloaded, and one restored."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.model_files import to_bytes
from imondrian.service import schemas
from imondrian.service.answers import answer_to
from imondrian.service.entries import MODEL, NEW_MODEL, Answer
from imondrian.service.registry import Known
from imondrian.service.routes.common import JSON, Name, copying, known_of, problems, registry_of
from imondrian.service.uploads import check_model
from imondrian.stream import StreamDetector

router = APIRouter(prefix="/detectors/{name}/model", tags=["models"])
_TYPE = "application/octet-stream"
_FILE = {_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@router.get("", response_class=Response, responses={200: {"content": _FILE}, **problems(404, 422, 503)})
async def model(request: Request, name: Name) -> Response:
    """Return the detector as a model file (.imf), from which it can be restored."""
    known = known_of(request, name)
    async with copying(request, known):
        content = await run_in_threadpool(_file_of, known)
    return Response(content, media_type=_TYPE, headers={"Content-Disposition": f'attachment; filename="{name}.imf"'})


@router.put(
    "",
    response_model=schemas.Counted,
    openapi_extra={"requestBody": {"required": True, "content": _FILE}, "parameters": [schemas.REQUEST_ID]},
    responses={201: {"model": schemas.Counted}, **problems(409, 413, 422, 429, 503, 507)},
)
async def restore(request: Request, name: Name) -> Response:
    """Make a detector from a model file, or let the one of that name go on from it, if it has the same configuration.

    The configuration of a new one is that of the file; features that have no names there are called x0, x1 and so on.
    """
    registry, content, request_id = registry_of(request), await request.body(), request.headers.get("idempotency-key")
    memory = request.app.state.memory
    async with request.app.state.making.turn():
        known, is_new = await run_in_threadpool(registry.restore, name, content, request_id, memory)
        if not is_new:
            await run_in_threadpool(check_model, content, known.kept.configuration, registry.limits, memory)
    if is_new and request_id is None:  # else the answer is known by its id, with what it was then
        made = answer_to(NEW_MODEL, known.live.figures.n_seen)
        return Response(made.content, made.status, media_type=JSON)
    done = known.live.submit(MODEL, content, 0, request_id)
    answer: Answer = await request.app.state.waiting.result_of(done)
    return Response(answer.content, answer.status, media_type=JSON)


def _file_of(known: Known) -> bytes:
    """Write the model file of a detector, with the names of its features."""
    with known.live.copies.asking() as detector:
        notes = {**detector.notes(), "names": known.kept.configuration["features"]}
        return to_bytes(StreamDetector.from_notes(detector.forest, notes))
