"""The latest rows: what was said of them, and why."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service import schemas
from imondrian.service.asking import explained_row, history_of
from imondrian.service.routes.common import Name, copying, known_of, large_answer, problems
from imondrian.service.settings import Keeping

router = APIRouter(prefix="/detectors/{name}/history", tags=["history"])
_LAST = 2**53
_MOST = Keeping().history


@router.get("", response_model=schemas.History, responses=problems(404, 422, 503))
async def history(
    request: Request,
    name: Name,
    after: Annotated[int, Query(ge=-1, le=_LAST, description="Only rows after this one.")] = -1,
    limit: Annotated[int, Query(ge=1, le=_MOST, description="At most so many, the latest.")] = _MOST,
) -> Response:
    """Return the latest rows and what was said of them."""
    return await large_answer(request, partial(history_of, known_of(request, name), after, limit))


@router.get("/{index}", responses=problems(404, 422, 503))
async def row(request: Request, name: Name, index: Annotated[int, Path(ge=0, le=_LAST)]) -> schemas.ExplainedRow:
    """Tell why one of the latest rows has its score."""
    known = known_of(request, name)
    async with copying(request, known):
        return await run_in_threadpool(explained_row, known, index)
