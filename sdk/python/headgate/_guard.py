"""What every middleware does."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar

from ._decision import AnyDecision, CheckRequest, Decision, Denial, Fallback

R = TypeVar("R")


class Guard(Generic[R]):
    """The options of every middleware. R is the request of the framework.

    tenant, attributes and cost are functions of a request. skip says whether a request
    passes unchecked. With shadow, every request passes, and denials are logged; requests
    are charged, and no header is set. Otherwise the middleware waits for the delay of a
    request that a leaky_bucket allows.
    """

    def __init__(
        self,
        *,
        tenant: Optional[Callable[[R], Optional[str]]] = None,
        attributes: Optional[Callable[[R], Mapping[str, str]]] = None,
        cost: Optional[Callable[[R], int]] = None,
        skip: Optional[Callable[[R], bool]] = None,
        shadow: bool = False,
        log: Optional[logging.Logger] = None,
    ) -> None:
        self._tenant = tenant
        self._attributes = attributes
        self._cost = cost
        self.skip = skip
        self.shadow = shadow
        self._log = log or logging.getLogger("headgate")

    def request(self, request: R, method: str, path: str) -> Optional[CheckRequest]:
        """Return the check of a request, or None if it passes unchecked."""
        if self.skip is not None and self.skip(request):
            return None
        return CheckRequest(
            tenant=self._tenant(request) if self._tenant else None,
            method=method,
            path=path,
            attributes=self._attributes(request) if self._attributes else {},
            cost=self._cost(request) if self._cost else None,
        )

    def passes(self, request: CheckRequest, decision: AnyDecision) -> bool:
        if decision.allowed or not self.shadow:
            return decision.allowed
        why = decision.error if isinstance(decision, Fallback) else decision.reason
        self._log.warning("headgate would deny %s %s: %s", request.method, request.path, why)
        return True

    def delay(self, decision: AnyDecision) -> float:
        """Return the seconds to wait before an allowed request is served, as a leaky_bucket says."""
        if self.shadow or not isinstance(decision, Decision):
            return 0
        return (decision.delay_ms or 0) / 1000

    def headers(self, decision: AnyDecision) -> List[Tuple[str, str]]:
        return [] if self.shadow else list(decision.headers.items())


def problem_of(decision: AnyDecision) -> Dict[str, Any]:
    """Return the RFC 9457 problem for a denied request. It contains nothing about the tenant's plan."""
    problem: Dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(decision.status).phrase, "status": decision.status}
    if not isinstance(decision, Denial):
        return problem
    if decision.reason == "over_limit" and decision.violated_policies:
        problem.update(type=decision.type, title=decision.title)
    if decision.status == 429:
        problem["detail"] = decision.detail
    if decision.violated_policies:
        problem["violated-policies"] = decision.violated_policies
    problem["decision_id"] = decision.decision_id
    return problem


def denied(decision: AnyDecision) -> Tuple[str, List[Tuple[str, str]], bytes]:
    """Return the status line, the headers and the body for a denied request."""
    body = json.dumps(problem_of(decision)).encode()
    headers = [*decision.headers.items(), ("content-type", "application/problem+json"), ("cache-control", "no-store"), ("content-length", str(len(body)))]
    return f"{decision.status} {HTTPStatus(decision.status).phrase}", headers, body
