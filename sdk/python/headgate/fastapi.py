"""FastAPI: a dependency for routes, and middleware for all routes.

    app.add_middleware(HeadgateMiddleware, client=client)

    @app.get("/items", dependencies=[Depends(limit(client, cost=lambda request: 2))])
    async def items(): ...
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Coroutine, Optional

import fastapi

from ._client import AsyncHeadgate
from ._decision import AnyDecision
from ._guard import Guard, problem_of
from .asgi import HeadgateMiddleware

__all__ = ["Denied", "HeadgateMiddleware", "install", "limit"]


class Denied(Exception):
    """The dependency limit denied the request. install adds the handler of this error."""

    def __init__(self, decision: AnyDecision) -> None:
        super().__init__(f"denied: {decision.status}")
        self.decision = decision


def install(app: fastapi.FastAPI) -> None:
    """Add the handler that answers the requests which the dependency limit denied."""

    @app.exception_handler(Denied)
    async def answer(_: fastapi.Request, error: Denied) -> fastapi.Response:
        headers = {**error.decision.headers, "cache-control": "no-store"}
        return fastapi.responses.JSONResponse(problem_of(error.decision), error.decision.status, headers, "application/problem+json")


def limit(client: AsyncHeadgate, **options: Any) -> Callable[..., Coroutine[Any, Any, Optional[AnyDecision]]]:
    """Return a dependency that checks a request. The functions get fastapi.Request."""
    guard: Guard[fastapi.Request] = Guard(**options)

    async def check(request: fastapi.Request, response: fastapi.Response) -> Optional[AnyDecision]:
        raw = request.scope.get("raw_path")
        found = guard.request(request, request.method, raw.decode("latin-1") if raw else request.url.path)
        if found is None:
            return None
        decision = await client.check(found)
        if not guard.passes(found, decision):
            raise Denied(decision)
        if delay := guard.delay(decision):
            await asyncio.sleep(delay)
        for name, value in guard.headers(decision):
            response.headers[name] = value
        return decision

    check.__annotations__ = {"request": fastapi.Request, "response": fastapi.Response}  # FastAPI reads them
    return check
