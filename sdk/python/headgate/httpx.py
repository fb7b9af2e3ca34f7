"""Transports that make the calls with httpx, which is optional: pip install headgate[httpx].

The URL of the client and of the transport are the same:

    client = AsyncHeadgate(url, token, transport=AsyncHttpx(url))
"""

from __future__ import annotations

import asyncio
import time
from typing import Optional

import httpx

from ._decision import Reply
from ._steps import Send
from ._transport import NotConnected


def _reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content)


class Httpx:
    """A transport for Headgate."""

    def __init__(self, url: str, client: Optional[httpx.Client] = None) -> None:
        self._url = url.rstrip("/")
        self._client = client or httpx.Client(follow_redirects=False)

    def __call__(self, send: Send) -> Reply:
        left = max(0.001, send.deadline - time.monotonic())
        try:
            return _reply(self._client.request(send.method, self._url + send.path, headers=send.headers, content=send.body, timeout=left))
        except httpx.ConnectError as error:
            raise NotConnected(str(error)) from error
        except httpx.TimeoutException as error:
            raise TimeoutError(str(error) or "no answer within the deadline") from error

    def close(self) -> None:
        self._client.close()


class AsyncHttpx:
    """A transport for AsyncHeadgate."""

    def __init__(self, url: str, client: Optional[httpx.AsyncClient] = None) -> None:
        self._url = url.rstrip("/")
        self._client = client or httpx.AsyncClient(follow_redirects=False)

    async def __call__(self, send: Send) -> Reply:
        left = max(0.001, send.deadline - time.monotonic())
        request = self._client.request(send.method, self._url + send.path, headers=send.headers, content=send.body, timeout=left)
        try:
            return _reply(await asyncio.wait_for(request, left))
        except httpx.ConnectError as error:
            raise NotConnected(str(error)) from error
        except httpx.TimeoutException as error:
            raise TimeoutError(str(error) or "no answer within the deadline") from error

    async def close(self) -> None:
        await self._client.aclose()
