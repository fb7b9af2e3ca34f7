"""Flask: check the requests of an application.

    limit(app, client, tenant=lambda request: request.headers.get("X-Customer"))

flask.g.headgate is the decision.
"""

from __future__ import annotations

import time
from typing import Any, Optional

import flask

from ._client import Headgate
from ._guard import Guard, denied
from .wsgi import path_of


def limit(app: flask.Flask, client: Headgate, **options: Any) -> None:
    """Check each request of app before its view. The functions get flask.Request."""
    guard: Guard[flask.Request] = Guard(**options)

    @app.before_request
    def check() -> Optional[flask.Response]:
        request = guard.request(flask.request, flask.request.method, path_of(flask.request.environ))
        if request is None:
            return None
        decision = client.check(request)
        if not guard.passes(request, decision):
            _, headers, body = denied(decision)
            return flask.Response(body, decision.status, headers)
        if delay := guard.delay(decision):
            time.sleep(delay)
        flask.g.headgate = decision
        return None

    @app.after_request
    def headers(response: flask.Response) -> flask.Response:
        decision = flask.g.get("headgate")
        if decision is not None:
            response.headers.update(guard.headers(decision))
        return response
