"""Model files: a detector taken away, and one brought."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.errors import InvalidInputError
from imondrian.models import to_bytes
from imondrian.service import schemas
from imondrian.service.configuration import new_detector
from imondrian.service.doing import detector_from
from imondrian.service.entries import MODEL, Answer
from imondrian.service.registry import Known
from imondrian.service.routes.common import JSON, Name, known_of, problems

router = APIRouter(prefix="/detectors/{name}/model", tags=["models"])
_TYPE = "application/octet-stream"
_FILE = {_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@router.get("", response_class=Response, responses={200: {"content": _FILE}, **problems(404, 422)})
async def model(request: Request, name: Name) -> Response:
    """Give the detector as a model file (.imf)."""
    content = await run_in_threadpool(_file_of, known_of(request, name))
    return Response(content, media_type=_TYPE, headers={"Content-Disposition": f'attachment; filename="{name}.imf"'})


@router.put(
    "",
    response_model=schemas.Counted,
    openapi_extra={"requestBody": {"required": True, "content": _FILE}, "parameters": [schemas.REQUEST_ID]},
    responses=problems(404, 413, 422, 429, 503, 507),
)
async def replace(request: Request, name: Name) -> Response:
    """Let the detector go on from a model file, which must be one of the same configuration."""
    known, content = known_of(request, name), await request.body()
    await run_in_threadpool(_check, content, known)
    done = known.live.submit(MODEL, content, 0, request.headers.get("idempotency-key"))
    answer: Answer = await request.app.state.waiting.result_of(done)
    return Response(answer.content, answer.status, media_type=JSON)


def _file_of(known: Known) -> bytes:
    with known.live.copies.asking() as detector:
        return to_bytes(detector)


def _check(content: bytes, known: Known) -> None:
    """Refuse a file that is damaged, or that of another detector."""
    detector, configuration = detector_from(content), known.kept.configuration
    theirs, ours = detector.parameters, new_detector(configuration).parameters
    theirs["features"], ours["features"] = (
        detector.feature_names or configuration["features"],
        configuration["features"],
    )
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise InvalidInputError(
                f"The model file is that of another detector: {name} is {theirs.get(name)!r:.100}, not {value!r:.100}."
            )
