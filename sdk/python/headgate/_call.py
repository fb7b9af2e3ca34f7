"""What the generated management calls use."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, Mapping, Optional, TypeVar
from urllib.parse import quote, urlencode

from ._decision import Reply, encode
from ._errors import ProblemError, UnreachableError
from ._steps import Send

T = TypeVar("T")
TIMEOUT = 30.0


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The data of an answer with the headers that callers need."""

    data: T
    #: The version of the object, for if_match.
    etag: Optional[str]
    #: The ID of the call in the logs of the server.
    request_id: Optional[str]
    #: The answer is that of an earlier call with the same idempotency key.
    replayed: bool


class Caller:
    """Sends the management calls. The generated class has the calls."""

    def __init__(self, send: Callable[[Send], Reply]) -> None:
        self._sender = send

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        body_type: Optional[str] = None,
        query: Optional[Mapping[str, Any]] = None,
        if_match: Optional[str] = None,
        idempotent: bool = False,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Answer[Any]:
        headers: Dict[str, str] = {}
        if body_type is not None:
            headers["Content-Type"] = body_type
        if if_match is not None:
            headers["If-Match"] = if_match
        if idempotent:
            headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
        text = None if body is None else encode(body)
        deadline = time.monotonic() + (TIMEOUT if timeout is None else timeout)
        reply = self._sender(Send(method, path + path_query(query or {}), headers, text, deadline))
        if not 200 <= reply.status < 300:
            raise reply.error(reply.json)
        is_json = "json" in reply.headers.get("content-type", "")
        if is_json and reply.json is None:
            raise UnreachableError("protocol", f"answer {reply.status}: it is not JSON")
        return Answer(
            reply.json if is_json else reply.body.decode() or None,
            reply.headers.get("etag"),
            reply.headers.get("x-request-id"),
            reply.headers.get("idempotent-replayed") == "true",
        )


def segment(value: object) -> str:
    """Return one segment of a path."""
    text = quote(str(value), safe="")
    if text in ("", ".", ".."):
        raise ProblemError(400, "Malformed", {"detail": f"{value!r} cannot be part of a path"})
    return text


def path_query(parameters: Mapping[str, Any]) -> str:
    """Return the query of a call. An object has style deepObject: name[member]."""
    pairs = []
    for name, value in parameters.items():
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, Mapping):
            pairs += [(f"{name}[{key}]", str(inner)) for key, inner in value.items()]
        elif value is not None:
            pairs.append((name, str(value)))
    return "?" + urlencode(pairs) if pairs else ""
