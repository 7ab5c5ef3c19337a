"""Detectors: made, listed, described, removed."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service.asking import described
from imondrian.service.routes.common import Name, known_of, problems, registry_of
from imondrian.service.schemas import Configuration, Description

router = APIRouter(prefix="/detectors", tags=["detectors"])


@router.put("/{name}", status_code=201, responses={200: {"model": Description}, **problems(400, 409, 413, 422, 507)})
async def create(request: Request, response: Response, name: Name, configuration: Configuration) -> Description:
    """Make a detector; if there is one with the same configuration already, nothing changes."""
    registry = registry_of(request)
    known, is_new = await run_in_threadpool(registry.create, name, configuration.model_dump())
    response.status_code = 201 if is_new else 200
    return described(known)


@router.get("", responses=problems())
async def listed(request: Request) -> list[Description]:
    """List the detectors."""
    return [described(known) for known in registry_of(request).all()]


@router.get("/{name}", responses=problems(404, 422))
async def get(request: Request, name: Name) -> Description:
    """Describe a detector."""
    return described(known_of(request, name))


@router.delete("/{name}", status_code=204, responses=problems(404, 422, 507))
async def remove(request: Request, name: Name) -> None:
    """Remove a detector and all that is kept of it."""
    await run_in_threadpool(registry_of(request).remove, name)
