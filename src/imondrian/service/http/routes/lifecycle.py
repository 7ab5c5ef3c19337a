"""Routes for detectors: create, list, describe, change and remove them; download and restore their model files."""

from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, RootModel, ValidationError
from starlette.concurrency import run_in_threadpool

from imondrian.base.errors import InvalidInputError
from imondrian.model_files import to_bytes
from imondrian.service.changes.configuration import check_names_and_lengths
from imondrian.service.changes.journal import MODEL, NEW_MODEL, SETTINGS
from imondrian.service.changes.replies import reply_to
from imondrian.service.changes.settings import Changes, check_changeable
from imondrian.service.detectors.registry import DetectorHandle
from imondrian.service.detectors.uploads import check_model, service_extra
from imondrian.service.errors import validation_message
from imondrian.service.http import schemas
from imondrian.service.http.bodies import object_of
from imondrian.service.http.keyed_queries import refuse_key
from imondrian.service.http.queries import description_of
from imondrian.service.http.routes.common import (
    JSON,
    Name,
    copy_slot,
    create_slot,
    handle_of,
    large_response,
    parse_body,
    problems,
    registry_of,
)
from imondrian.service.http.schemas import Configuration, Description
from imondrian.service.limits import Limits
from imondrian.stream.detector import StreamDetector

router = APIRouter(prefix="/detectors", tags=["detectors"])
model_router = APIRouter(prefix="/detectors/{name}/model", tags=["models"])
Descriptions = RootModel[list[Description]]
Schema = TypeVar("Schema", bound=BaseModel)


@router.put(
    "/{name}",
    status_code=201,
    response_model=Description,
    openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": Configuration.model_json_schema()}}}},
    responses={200: {"model": Description}, **problems(409, 413, 422, 503, 504, 507)},
)
async def create(request: Request, name: Name) -> Response:
    """Create a detector; if it exists already, with the same configuration, nothing changes."""
    registry = registry_of(request)
    configuration = await parse_body(request, partial(_configuration, registry.limits))
    async with create_slot(request):
        handle, is_new = await run_in_threadpool(registry.create, name, configuration.model_dump(exclude_unset=True))
        content = await run_in_threadpool(lambda: description_of(handle).model_dump_json())
    return Response(content, 201 if is_new else 200, media_type=JSON)


@router.get("", response_model=list[Description], responses=problems(503))
async def listed(request: Request) -> Response:
    """List the detectors."""
    return await large_response(
        request, lambda: Descriptions([description_of(handle) for handle in registry_of(request).all()])
    )


@router.get("/{name}", response_model=Description, responses=problems(404, 422, 503))
async def get(request: Request, name: Name) -> Response:
    """Describe a detector."""
    return await large_response(request, partial(description_of, handle_of(request, name)))


@router.patch(
    "/{name}",
    response_model=schemas.Settings,
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": schemas.Changes.model_json_schema()}}},
        "parameters": [schemas.REQUEST_ID],
    },
    responses=problems(404, 413, 422, 429, 503, 504, 507),
)
async def change(request: Request, name: Name) -> Response:
    """Change the threshold, the rules for incidents or the silence of a detector, which keeps all that it has learned.

    Rules by feature (`side`, `ignore_within`) are replaced as a whole. Repeating the request changes nothing.
    """
    handle = handle_of(request, name)
    content = await parse_body(request, partial(_changes, handle.configuration, registry_of(request).limits))
    done = handle.worker.submit(SETTINGS, content, 0, request.headers.get("idempotency-key"))
    reply = await request.app.state.futures.wrap(done)
    return Response(reply.content, reply.status, media_type=JSON)


@router.delete("/{name}", status_code=204, responses=problems(404, 422, 503, 504, 507))
async def remove(request: Request, name: Name) -> None:
    """Remove a detector and all its data; requests in its queue get 404."""
    await request.app.state.futures.wrap(registry_of(request).start_removal(name))


def _configuration(limits: Limits, body: bytes) -> Configuration:
    """Return the configuration in a body, whatever its Content-Type."""
    settings = object_of(body)
    check_names_and_lengths(settings, limits)
    return _validated(Configuration, settings)


def _changes(configuration: dict[str, Any], limits: Limits, body: bytes) -> bytes:
    """Return the changes in a body as the content of a journal entry."""
    settings = object_of(body)
    check_changeable(settings)
    check_names_and_lengths(settings, limits)
    validated = _validated(schemas.Changes, settings)
    return Changes.of(validated.model_dump(exclude_unset=True), configuration).to_bytes()


def _validated(schema: type[Schema], settings: dict[str, Any]) -> Schema:
    try:
        return schema.model_validate(settings)
    except ValidationError as error:
        raise InvalidInputError(validation_message(error.errors()[0])) from None


_TYPE = "application/octet-stream"
_NO_FILE = "it has no model file; GET /backup returns a copy of all detectors"
_FILE = {_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@model_router.get("", response_class=Response, responses={200: {"content": _FILE}, **problems(404, 422, 503)})
async def model(request: Request, name: Name) -> Response:
    """Return the detector as a model file (.imf), from which it can be restored."""
    handle = handle_of(request, name)
    refuse_key(handle, _NO_FILE)
    async with copy_slot(request, handle):
        content = await run_in_threadpool(_file_of, handle)
    return Response(content, media_type=_TYPE, headers={"Content-Disposition": f'attachment; filename="{name}.imf"'})


@model_router.put(
    "",
    response_model=schemas.Counted,
    openapi_extra={"requestBody": {"required": True, "content": _FILE}, "parameters": [schemas.REQUEST_ID]},
    responses={201: {"model": schemas.Counted}, **problems(409, 413, 422, 429, 503, 504, 507)},
)
async def restore(request: Request, name: Name) -> Response:
    """Create a detector from a model file, or replace the state of an existing one with the same configuration.

    A new detector has the configuration of the file; features without names are called x0, x1 and so on.
    """
    registry, content, request_id = registry_of(request), await request.body(), request.headers.get("idempotency-key")
    memory = request.state.memory
    async with create_slot(request):
        handle, is_new = await run_in_threadpool(registry.restore, name, content, request_id, memory)
        if not is_new:
            refuse_key(handle, _NO_FILE)
            await run_in_threadpool(check_model, content, handle.configuration, registry.limits, memory)
    if is_new and request_id is None:  # with an id, `submit` below returns the saved reply
        reply = reply_to(NEW_MODEL, handle.worker.summary.n_seen)
        return Response(reply.content, reply.status, media_type=JSON)
    # in a thread, because `submit` computes a digest
    done = await run_in_threadpool(handle.worker.submit, MODEL, content, 0, request_id)
    reply = await request.app.state.futures.wrap(done)
    return Response(reply.content, reply.status, media_type=JSON)


def _file_of(handle: DetectorHandle) -> bytes:
    """Return the model file of a detector, with the names of its features and the settings of the service."""
    configuration = handle.configuration
    with handle.worker.read_copy.read() as detector:
        notes = {**detector.notes(), "names": configuration["features"]}
        return to_bytes(StreamDetector.from_notes(detector.forest, notes), service_extra(configuration))
