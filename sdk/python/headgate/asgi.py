"""ASGI middleware, for Starlette, FastAPI, Django and others.

    app = HeadgateMiddleware(app, client, attributes=lambda scope: {"ip": scope["client"][0]})

scope["state"]["headgate"] is the decision.
"""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable, Dict
from urllib.parse import quote

from ._client import AsyncHeadgate
from ._guard import Guard, denied

Scope = Dict[str, Any]
Receive = Callable[[], Awaitable[Dict[str, Any]]]
Send = Callable[[Dict[str, Any]], Awaitable[None]]


class HeadgateMiddleware(Guard[Scope]):
    """Checks each HTTP request before the application serves it."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], client: AsyncHeadgate, **options: Any) -> None:
        super().__init__(**options)
        self._app = app
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = None
        if scope["type"] == "http":
            raw = scope.get("raw_path")
            path = raw.decode("latin-1") if raw else quote(scope["path"], safe="/:@!$&'()*+,;=-._~")
            request = self.request(scope, scope["method"], path)
        if request is None:
            return await self._app(scope, receive, send)
        decision = await self._client.check(request)
        if not self.passes(request, decision):
            _, headers, body = denied(decision)
            await send({"type": "http.response.start", "status": decision.status, "headers": _latin(headers)})
            await send({"type": "http.response.body", "body": body})
            return None
        if delay := self.delay(decision):
            await asyncio.sleep(delay)
        scope.setdefault("state", {})["headgate"] = decision
        ours = _latin(self.headers(decision))
        names = {name for name, _ in ours}

        async def with_headers(message: Dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [h for h in message.get("headers", []) if bytes(h[0]).lower() not in names] + ours
            await send(message)

        await self._app(scope, receive, with_headers)


def _latin(headers: Any) -> Any:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
