"""Detectors: made, listed, described, removed."""

from fastapi import APIRouter, Request, Response
from pydantic import RootModel, ValidationError
from starlette.concurrency import run_in_threadpool

from imondrian.errors import InvalidInputError
from imondrian.service.asking import described
from imondrian.service.bodies import refuse_duplicate_keys
from imondrian.service.routes.common import JSON, Name, known_of, large_answer, problems, registry_of
from imondrian.service.schemas import Configuration, Description
from imondrian.service.telling import in_one_line

router = APIRouter(prefix="/detectors", tags=["detectors"])
Descriptions = RootModel[list[Description]]


@router.put(
    "/{name}",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": Configuration.model_json_schema()}}}},
    responses={200: {"model": Description}, **problems(409, 413, 422, 503, 507)},
)
async def create(request: Request, response: Response, name: Name) -> Description:
    """Make a detector; if there is one with the same configuration already, nothing changes."""
    registry, configuration = registry_of(request), await run_in_threadpool(_configuration, await request.body())
    async with request.app.state.making.turn():
        known, is_new = await run_in_threadpool(registry.create, name, configuration.model_dump())
    response.status_code = 201 if is_new else 200
    return described(known)


@router.get("", response_model=list[Description], responses=problems(503))
async def listed(request: Request) -> Response:
    """List the detectors."""
    return await large_answer(request, lambda: Descriptions([described(known) for known in registry_of(request).all()]))


@router.get("/{name}", responses=problems(404, 422, 503))
async def get(request: Request, name: Name) -> Description:
    """Describe a detector."""
    return described(known_of(request, name))


@router.delete("/{name}", status_code=204, responses=problems(404, 422, 503, 507))
async def remove(request: Request, name: Name) -> None:
    """Remove a detector and all that is kept of it; requests that wait for it are answered 404."""
    await request.app.state.waiting.result_of(registry_of(request).start_removal(name))


def _configuration(body: bytes) -> Configuration:
    """Read a configuration, whatever the body is said to be."""
    refuse_duplicate_keys(body)
    try:
        return Configuration.model_validate_json(body)
    except ValidationError as error:
        raise InvalidInputError(in_one_line(error.errors()[0])) from None
