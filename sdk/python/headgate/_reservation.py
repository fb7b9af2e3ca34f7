"""Reservations: requests whose real cost is known only later."""

from __future__ import annotations

import time
import uuid
from typing import Any, Awaitable, Callable, Dict, Mapping, Optional, Union

from ._call import TIMEOUT, path_query, segment
from ._decision import AnyDecision, Reply, encode
from ._errors import HeadgateError, ProblemError, UnreachableError
from ._steps import Send


class _Held:
    """What both kinds of reservation have."""

    def __init__(self, id: str, tenant: Optional[str], decision: AnyDecision, held: bool) -> None:
        #: The ID of the reservation.
        self.id = id
        #: Whether the request may pass, and why.
        self.decision = decision
        #: Whether the reservation exists. It is also true if the answer was lost, because the
        #: reservation may exist then. It is false if the request was denied, or if it was allowed
        #: while the shared limiter was unavailable. Then settle, extend and release make no call.
        self.held = held
        self._tenant = tenant

    def _change(self, method: str, action: str, body: Optional[Dict[str, Any]], timeout: Optional[float]) -> Send:
        path = f"/v1/reservations/{segment(self.id)}{action}" + path_query({"tenant": self._tenant})
        deadline = time.monotonic() + (TIMEOUT if timeout is None else timeout)
        return Send(method, path, {}, None if body is None else encode(body), deadline, idempotent=True)

    def _settlement(self, cost: Optional[int], attributes: Optional[Mapping[str, str]], timeout: Optional[float]) -> Send:
        body: Dict[str, Any] = {}
        if cost is not None:
            body["cost"] = cost
        if attributes:
            body["attributes"] = dict(attributes)
        return self._change("POST", "/settle", body, timeout)

    def _extension(self, ttl: float, timeout: Optional[float]) -> Send:
        return self._change("POST", "/extend", {"ttl_ms": milliseconds(ttl)}, timeout)

    def _changed(self, reply: Reply) -> None:
        """Raise the error of an answer."""
        if 200 <= reply.status < 300:
            return
        error = reply.error(reply.json)
        # 404: the request that would have made the reservation was lost, not its answer.
        if self.decision.kind == "fallback" and isinstance(error, ProblemError) and error.status == 404:
            return
        raise error


class Reservation(_Held):
    """The answer to Headgate.reserve.

    If its decision allows the request, serve the request, and call settle or release afterwards.
    Both repeat the call if the answer is lost, because Headgate ends a reservation once. A
    ProblemError with the status 409 says how the reservation has ended before.
    """

    def __init__(self, send: Callable[[Send], Reply], *held: Any) -> None:
        super().__init__(*held)
        self._send = send

    def settle(self, cost: Optional[int] = None, *, attributes: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> None:
        """End the reservation with its real cost, in the windows that were charged.

        cost is for all policies without cost_from; attributes has the costs for the others, such
        as {"tokens": "1800"}. A policy for which neither has a cost keeps its estimate.
        """
        if self.held:
            self._changed(self._send(self._settlement(cost, attributes, timeout)))

    def extend(self, ttl: float, *, timeout: Optional[float] = None) -> None:
        """Make the reservation end when ttl seconds have passed from now on."""
        if self.held:
            self._changed(self._send(self._extension(ttl, timeout)))

    def release(self, *, timeout: Optional[float] = None) -> None:
        """End the reservation and give its whole cost back."""
        if self.held:
            self._changed(self._send(self._change("DELETE", "", None, timeout)))


class AsyncReservation(_Held):
    """The answer to AsyncHeadgate.reserve. See Reservation."""

    def __init__(self, send: Callable[[Send], Awaitable[Reply]], *held: Any) -> None:
        super().__init__(*held)
        self._send = send

    async def settle(self, cost: Optional[int] = None, *, attributes: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> None:
        """End the reservation with its real cost. See Reservation.settle."""
        if self.held:
            self._changed(await self._send(self._settlement(cost, attributes, timeout)))

    async def extend(self, ttl: float, *, timeout: Optional[float] = None) -> None:
        """Make the reservation end when ttl seconds have passed from now on."""
        if self.held:
            self._changed(await self._send(self._extension(ttl, timeout)))

    async def release(self, *, timeout: Optional[float] = None) -> None:
        """End the reservation and give its whole cost back."""
        if self.held:
            self._changed(await self._send(self._change("DELETE", "", None, timeout)))


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def new_id() -> str:
    return str(uuid.uuid4())


def may_exist(outcome: Union[Reply, HeadgateError]) -> bool:
    """Return whether a reservation exists, or may exist, after the answer or the error of its call."""
    if isinstance(outcome, HeadgateError):
        return isinstance(outcome, UnreachableError) and outcome.code != "unavailable"
    return isinstance(outcome.json, dict) and "reservation" in outcome.json
