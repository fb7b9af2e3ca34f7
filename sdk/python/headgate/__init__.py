"""Client of Headgate, a service for quotas and rate limits. It has no dependencies.

    with Headgate("http://127.0.0.1:8080", token) as client:
        decision = client.check(tenant="acme", method="POST", path="/v1/login", attributes={"ip": "203.0.113.9"})
        if not decision.allowed:
            ...  # answer decision.status with decision.headers

headgate.wsgi, headgate.asgi, headgate.flask and headgate.fastapi have middleware.
"""

from ._call import Answer
from ._client import AsyncHeadgate, AsyncTransport, Headgate, Hooks, Transport
from ._decision import AnyDecision, CheckRequest, Decision, Denial, Fallback, Reply
from ._errors import HeadgateError, ProblemError, UnreachableError
from ._manage_gen import Management
from ._reservation import AsyncReservation, Reservation
from ._steps import Send
from ._transport import NotConnected
from ._version import __version__

__all__ = [
    "AnyDecision",
    "Answer",
    "AsyncHeadgate",
    "AsyncReservation",
    "AsyncTransport",
    "CheckRequest",
    "Decision",
    "Denial",
    "Fallback",
    "Headgate",
    "HeadgateError",
    "Hooks",
    "Management",
    "NotConnected",
    "ProblemError",
    "Reply",
    "Reservation",
    "Send",
    "Transport",
    "UnreachableError",
    "__version__",
]
