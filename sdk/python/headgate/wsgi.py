"""WSGI middleware, for Django, Flask and others.

    application = HeadgateMiddleware(application, client, attributes=lambda environ: {"ip": environ["REMOTE_ADDR"]})

environ["headgate.decision"] is the decision.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable
from urllib.parse import quote

from ._client import Headgate
from ._guard import Guard, denied

Environ = Dict[str, Any]


def path_of(environ: Environ) -> str:
    """Return the escaped path of a request."""
    raw: str = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")) or "/"
    return quote(raw.encode("latin-1"), safe="/:@!$&'()*+,;=-._~")


class HeadgateMiddleware(Guard[Environ]):
    """Checks each request before the application serves it."""

    def __init__(self, application: Callable[..., Iterable[bytes]], client: Headgate, **options: Any) -> None:
        super().__init__(**options)
        self._application = application
        self._client = client

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = self.request(environ, environ["REQUEST_METHOD"], path_of(environ))
        if request is None:
            return self._application(environ, start_response)
        decision = self._client.check(request)
        if not self.passes(request, decision):
            status, headers, body = denied(decision)
            start_response(status, headers)
            return [body]
        if delay := self.delay(decision):
            time.sleep(delay)
        environ["headgate.decision"] = decision
        ours = self.headers(decision)

        def with_headers(status: str, headers: Any, *rest: Any) -> Any:
            names = {name for name, _ in ours}
            return start_response(status, [h for h in headers if h[0].lower() not in names] + ours, *rest)

        return self._application(environ, with_headers)
