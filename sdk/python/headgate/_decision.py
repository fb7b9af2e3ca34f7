"""Requests and decisions."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Union

from ._errors import HeadgateError, ProblemError, UnreachableError

if TYPE_CHECKING:
    from typing import Literal

    from ._manage_gen import CheckLease, DecisionLease, LimitState


@dataclass(frozen=True)
class CheckRequest:
    """A request to decide."""

    #: ID or slug. An operator key must name it; a tenant key may leave it out.
    tenant: Optional[str] = None
    #: The method of the request, such as GET.
    method: Optional[str] = None
    #: The path of the request without its query. It begins with /.
    path: Optional[str] = None
    #: The values that policies count by, such as ip and user.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: The quota units. 0 charges nothing. Default: 1.
    cost: Optional[int] = None
    #: peek charges nothing; force charges even if nothing is left; take_up_to charges as much of
    #: the cost as is left. Default: enforce.
    mode: Optional[Literal["enforce", "peek", "force", "take_up_to"]] = None
    #: Makes the check idempotent: 1 to 255 visible ASCII characters, such as the ID of the
    #: request that you serve. A repetition within 10 minutes gets the first decision again and
    #: charges nothing. The client therefore also retries if the connection breaks before the
    #: answer. In a batch, only the key of the first request counts; it is that of the whole batch.
    idempotency_key: Optional[str] = None
    #: Keeps what the check charges, so that manage.refund_check can give it back. Not with peek,
    #: and not in an atomic batch. Default: False.
    refundable: bool = False
    #: The lease that holds places of concurrency limits until manage.release_lease or its end.
    #: A check with the ID of a lease that has not ended renews it. Default: a lease with the ID
    #: of the decision, for the window of each limit. The decision has the lease.
    lease: Optional[CheckLease] = None

    def wire(self) -> Dict[str, Any]:
        """Return the members that are set, in a fixed order. Equal requests give equal JSON."""
        found: Dict[str, Any] = {}
        for name, value in (("tenant", self.tenant), ("method", self.method), ("path", self.path)):
            if value:
                found[name] = well_formed(value)
        if self.attributes:
            found["attributes"] = {well_formed(name): well_formed(self.attributes[name]) for name in sorted(self.attributes)}
        if self.cost is not None:
            found["cost"] = self.cost
        if self.mode:
            found["mode"] = self.mode
        if self.refundable:
            found["refundable"] = True
        if self.lease:
            lease: Dict[str, Any] = {}
            if "id" in self.lease:
                lease["id"] = well_formed(self.lease["id"])
            if "ttl_ms" in self.lease:
                lease["ttl_ms"] = self.lease["ttl_ms"]
            found["lease"] = lease
        return found


def well_formed(text: str) -> str:
    """Replace lone surrogates with U+FFFD."""
    text = str(text)
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Decision:
    """Headgate allows the request."""

    decision_id: str
    tenant: str
    plan: Optional[str]
    plan_version: Optional[int]
    mode: str
    #: Why. Later versions may add values.
    reason: str
    #: Milliseconds until the same request would pass. None: waiting does not help.
    retry_after_ms: Optional[int]
    #: How many milliseconds the caller waits before it serves the request, because of a leaky_bucket or a policy in mode delay. The middleware waits.
    delay_ms: int
    #: The shared limiter did not answer, and failure modes decided.
    degraded: bool
    #: Every limit that applied.
    limits: List[LimitState]
    request_id: Optional[str]
    #: The rate-limit headers for the answer, in lower case.
    headers: Dict[str, str] = field(default_factory=dict)
    #: The status for the answer to a denied request: 429, 403 or 503. 200 if it is allowed.
    status: int = 200
    #: The denial was remembered: no call was made.
    remembered: bool = False
    error: None = None
    #: The largest warn_at threshold that an enforced limit has reached, in percent. None: none is reached.
    near_limit: Optional[int] = None
    #: The first decision of the idempotency_key; nothing was charged again.
    replayed: bool = False
    #: The time until which a check with refundable can be refunded, in RFC 3339. None: there is nothing to refund.
    refundable_until: Optional[str] = None
    #: The units that were charged for a request with take_up_to. The cost of each limit is its part. None: another mode.
    taken: Optional[int] = None
    #: The lease that holds the places of the request on concurrency limits. None: there is none.
    lease: Optional[DecisionLease] = None
    #: "cheap": the request is over a limit of a policy in mode degrade, so serve an answer that costs less. None: the full answer.
    serve: Optional[str] = None

    kind = "decision"
    allowed = True


@dataclass(frozen=True)
class Denial(Decision):
    """Headgate denies the request."""

    type: str = "about:blank"
    title: str = ""
    detail: str = ""
    violated_policies: List[str] = field(default_factory=list)

    kind = "denial"
    allowed = False

    def after(self, milliseconds: float) -> Denial:
        """Return the denial as it is some time later."""
        left = max(1, math.ceil((self.retry_after_ms or 0) - milliseconds))
        headers = {**self.headers, "retry-after": str(math.ceil(left / 1000))}
        return replace(self, remembered=True, retry_after_ms=left, headers=headers)


@dataclass(frozen=True)
class Fallback:
    """Headgate did not decide, because of error."""

    allowed: bool
    status: int
    error: HeadgateError
    headers: Dict[str, str] = field(default_factory=dict)
    retry_after_ms: Optional[int] = None
    remembered: bool = False

    kind = "fallback"


AnyDecision = Union[Decision, Denial, Fallback]


class Reply:
    """A response whose body is read. Names of headers are lower case."""

    def __init__(self, status: int, headers: Dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.json: Any = None
        try:
            self.json = json.loads(body)
        except ValueError:
            pass

    def error(self, body: Any) -> HeadgateError:
        """Return the error for an answer that has no decision."""
        problem = dict(body) if isinstance(body, dict) else {}
        status = problem.get("status")
        if not isinstance(status, int):
            status = self.status
        problem.setdefault("request_id", self.headers.get("x-request-id"))
        title = problem.get("title")
        if status == 503:
            return UnreachableError("unavailable", ProblemError(status, title or "Service Unavailable", problem))
        if not isinstance(title, str):
            return UnreachableError("protocol", f"answer {self.status}: it is no problem document")
        return ProblemError(status, title, problem)

    def rate_limit_headers(self) -> Dict[str, str]:
        prefixes = ("ratelimit", "x-ratelimit", "retry-after")
        return {name: value for name, value in self.headers.items() if name.startswith(prefixes)}

    def decision(self, body: Any, headers: Dict[str, str]) -> Union[Decision, Denial]:
        """Return the decision of the answer, or raise the error for an answer without one."""
        if not isinstance(body, dict) or body.get("kind") == "problem":
            raise self.error(body)
        kind = body.get("kind")
        if kind not in ("decision", "denial") or body.get("allowed") is not (kind == "decision"):
            raise UnreachableError("protocol", f"answer {self.status}: it has no decision")
        if body.get("reason") == "overloaded":
            raise UnreachableError("unavailable", f"{body.get('status')} {body.get('detail')}")
        known: Dict[str, Any] = {name: body.get(name) for name in _COMMON}
        known["limits"] = body.get("limits") or []
        known["replayed"] = body.get("replayed") is True
        known["request_id"] = body.get("request_id") or self.headers.get("x-request-id")
        if kind == "decision":
            return Decision(**known, headers=headers)
        for name in ("type", "title", "detail", "status"):
            known[name] = body.get(name)
        return Denial(**known, headers=headers, violated_policies=body.get("violated-policies") or [])


_COMMON = ("decision_id", "tenant", "plan", "plan_version", "mode", "reason", "retry_after_ms", "delay_ms", "degraded", "near_limit", "refundable_until", "taken", "lease", "serve")
