"""The check clients: Headgate, and AsyncHeadgate for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Iterable, List, Optional, Protocol, Tuple, Union
from urllib.parse import urlsplit

from ._decision import AnyDecision, CheckRequest, Denial, Fallback, Reply, encode
from ._errors import HeadgateError, ProblemError, UnreachableError
from ._manage_gen import Management
from ._reservation import AsyncReservation, Reservation, may_exist, milliseconds, new_id
from ._steps import IDEMPOTENCY_KEY, TIMEOUTS, Budget, Denials, Send, Sleep, Steps, call, quietly
from ._transport import Abort, Pool
from ._version import __version__

if TYPE_CHECKING:
    from typing import Literal

    OnUnreachable = Union[Literal["open", "closed"], Callable[[CheckRequest, HeadgateError], bool]]


class Transport(Protocol):
    """Sends one call until its deadline, which is a time of time.monotonic."""

    def __call__(self, send: Send) -> Reply: ...


class AsyncTransport(Protocol):
    """Sends one call until its deadline, which is a time of time.monotonic."""

    def __call__(self, send: Send) -> Awaitable[Reply]: ...


class Hooks:
    """Functions for logs and metrics. An error in them fails no request."""

    def __init__(
        self,
        decided: Optional[Callable[[CheckRequest, AnyDecision, float], None]] = None,
        failed: Optional[Callable[[HeadgateError], None]] = None,
        retrying: Optional[Callable[[HeadgateError, float], None]] = None,
    ) -> None:
        #: Called after each check, with the seconds that it took, and for each item of a batch.
        self.decided = decided
        #: Called when a call has failed and is not retried.
        self.failed = failed
        #: Called before each retry, with the seconds until the retry.
        self.retrying = retrying


class _Rules:
    """What both clients have: the options, and all rules except input and output."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = 0.25,
        on_unreachable: OnUnreachable = "open",
        max_retries: int = 2,
        remember_denials: bool = False,
        raise_errors: bool = False,
        hooks: Optional[Hooks] = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"headgate: url is {url!r}: it must be like https://headgate.example")
        if not re.fullmatch(r"[!-~]+", token or ""):
            raise ValueError("headgate: token is empty or has characters that no key has")
        if not timeout > 0:
            raise ValueError(f"headgate: timeout is {timeout}: it must be positive")
        if max_retries < 0:
            raise ValueError(f"headgate: max_retries is {max_retries}: it must be a number of retries")
        if on_unreachable not in ("open", "closed") and not callable(on_unreachable):
            raise ValueError(f"headgate: on_unreachable is {on_unreachable!r}: it must be open, closed or a function")
        self._timeout = timeout
        self._on_unreachable = on_unreachable
        self._max_retries = max_retries
        self._remember_denials = remember_denials
        self._raise_errors = raise_errors
        self._hooks = hooks or Hooks()
        self._budget = Budget()
        self._denials = Denials()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "User-Agent": f"headgate-python/{__version__}"}

    def _call(self, path: str, request: CheckRequest, body: bytes, deadline: float) -> Steps:
        headers = self._headers
        if request.idempotency_key:
            headers = {**headers, IDEMPOTENCY_KEY: request.idempotency_key}
        return call(Send("POST", path, headers, body, deadline), self._max_retries, self._budget, self._hooks.retrying)

    def _managed(self, send: Send) -> Steps:
        """Return the steps of a call that is not a check."""
        headers = {**self._headers, **send.headers}
        if send.body is None:
            headers.pop("Content-Type", None)
        return call(replace(send, headers=headers), self._max_retries, self._budget, self._hooks.retrying)

    def _reserve(self, request: CheckRequest, id: str, ttl: float, deadline: float) -> Send:
        body = encode({**request.wire(), "id": id, "ttl_ms": milliseconds(ttl)})
        return Send("POST", "/v1/reservations", self._headers, body, deadline, idempotent=True)

    def _request(self, request: Optional[CheckRequest], members: Any) -> CheckRequest:
        if request is None:
            return CheckRequest(**members)
        if members:
            raise TypeError("headgate: give a CheckRequest or its members, not both")
        return request

    def _remembers(self, request: CheckRequest) -> bool:
        return self._remember_denials and request.mode in (None, "enforce") and not request.idempotency_key

    def _checked(self, request: CheckRequest, body: bytes, reply: Reply) -> AnyDecision:
        try:
            decision = reply.decision(reply.json, reply.rate_limit_headers())
        except HeadgateError as error:
            return self._without(request, error)
        if isinstance(decision, Denial) and self._remembers(request):
            self._denials.put(body, decision)
        return decision

    def _batch_body(self, requests: List[CheckRequest], atomic: bool) -> bytes:
        wire = {"checks": [request.wire() for request in requests]}
        return encode({**wire, "atomic": True} if atomic else wire)

    def _batch(self, requests: List[CheckRequest], reply: Reply) -> List[AnyDecision]:
        if reply.status != 200:
            raise reply.error(reply.json)
        results = reply.json.get("results") if isinstance(reply.json, dict) else None
        if not isinstance(results, list) or len(results) != len(requests):
            raise UnreachableError("protocol", "the answer does not have one result for each check")
        decisions: List[AnyDecision] = []
        for request, result in zip(requests, results):
            try:
                decisions.append(reply.decision(result, {}))
            except HeadgateError as error:
                decisions.append(self._without(request, error))
        return decisions

    def _without(self, request: CheckRequest, error: HeadgateError, report: bool = True) -> Fallback:
        """Decide a request that Headgate did not decide."""
        if report:
            quietly(self._hooks.failed, error)
        if self._raise_errors:
            raise error
        rejected = isinstance(error, ProblemError) and error.rejects
        allowed = self._on_unreachable == "open" and not rejected
        if isinstance(error, UnreachableError) and error.code == "canceled":
            allowed = False
        elif callable(self._on_unreachable):
            try:
                allowed = self._on_unreachable(request, error) is True
            except Exception:  # a callback that raises denies
                allowed = False
        if allowed:
            return Fallback(True, 200, error)
        return Fallback(False, 403, error) if rejected else Fallback(False, 503, error, {"retry-after": "1"})

    def _decided(self, request: CheckRequest, decision: AnyDecision, start: float) -> None:
        quietly(self._hooks.decided, request, decision, time.monotonic() - start)


def _typed(error: BaseException) -> HeadgateError:
    if isinstance(error, HeadgateError):
        return error
    late = isinstance(error, TIMEOUTS)
    return UnreachableError("timeout" if late else "connection", error)


class Headgate(_Rules):
    """A client of Headgate. Threads may share it; one for each process is enough.

    timeout bounds each check in seconds, its retries included. on_unreachable decides if
    Headgate does not: open, closed, or a function of the request and the error. A request
    that Headgate rejects with 4xx (except 401, 408 and 429) is denied even with open.
    transport replaces the pool of connections of the standard library.
    """

    def __init__(self, url: str, token: str, *, transport: Optional[Transport] = None, **options: Any) -> None:
        super().__init__(url, token, **options)
        self._pool: Optional[Pool] = None
        if transport is None:
            pool = self._pool = Pool(url)
            transport = lambda send: pool.send(send.method, send.path, send.headers, send.body, send.deadline)  # noqa: E731
        self._transport = transport
        #: The management calls.
        self.manage = Management(self._raw)

    def close(self) -> None:
        """Close the idle connections."""
        if self._pool is not None:
            self._pool.close()
        closing = getattr(self._transport, "close", None)
        if closing is not None:
            closing()

    def __enter__(self) -> Headgate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, request: Optional[CheckRequest] = None, **members: Any) -> AnyDecision:
        """Decide a request and charge its cost.

        It always returns a decision: if Headgate does not decide, the decision is a
        Fallback with the error.
        """
        request = self._request(request, members)
        start = time.monotonic()
        body = encode(request.wire())
        decision: Optional[AnyDecision] = self._denials.get(body) if self._remembers(request) else None
        if decision is None:
            try:
                reply = self._drive(self._call("/v1/check", request, body, start + self._timeout))
            except HeadgateError as error:
                decision = self._without(request, error)
            else:
                decision = self._checked(request, body, reply)
        self._decided(request, decision, start)
        return decision

    def check_batch(self, requests: Iterable[CheckRequest], *, atomic: bool = False) -> List[AnyDecision]:
        """Decide up to 1,000 requests in one call, and return one decision for each, in order.

        With atomic, it charges all requests or none: they have one tenant, and are at most 100.
        """
        listed = list(requests)
        if not listed:
            return []
        start = time.monotonic()
        try:
            reply = self._drive(self._call("/v1/check/batch", listed[0], self._batch_body(listed, atomic), start + self._timeout))
            decisions = self._batch(listed, reply)
        except HeadgateError as error:
            if not self._raise_errors:
                quietly(self._hooks.failed, error)
            decisions = [self._without(request, error, self._raise_errors) for request in listed]
        for request, decision in zip(listed, decisions):
            self._decided(request, decision, start)
        return decisions

    def reserve(self, request: Optional[CheckRequest] = None, *, ttl: float, id: Optional[str] = None, **members: Any) -> Reservation:
        """Decide a request like check, and keep what it charged as a reservation.

        The cost, and the attributes that policies read costs from, are estimates. ttl is the time
        in seconds after which the reservation ends by itself. id is an ID of your own, such as
        that of the job. It makes the call idempotent; an idempotency_key has no effect. It always
        returns a Reservation: if Headgate does not decide, its decision is a Fallback.
        """
        request = self._request(request, members)
        start = time.monotonic()
        id = id or new_id()
        send = self._reserve(request, id, ttl, start + self._timeout)
        outcome: Union[Reply, HeadgateError]
        decision: AnyDecision
        try:
            outcome = self._drive(call(send, self._max_retries, self._budget, self._hooks.retrying))
            decision = outcome.decision(outcome.json, outcome.rate_limit_headers())
        except HeadgateError as error:
            outcome, decision = error, self._without(request, error)
        self._decided(request, decision, start)
        return Reservation(self._raw, id, request.tenant, decision, may_exist(outcome))

    def _drive(self, steps: Steps) -> Reply:
        reply: Optional[Reply] = None
        failure: Optional[BaseException] = None
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as stop:
                result: Reply = stop.value
                return result
            except Exception as error:
                raise _typed(error) from error
            reply = failure = None
            if isinstance(step, Sleep):
                time.sleep(step.seconds)
                continue
            try:
                reply = self._transport(step)
            except Exception as error:
                failure = error

    def _raw(self, send: Send) -> Reply:
        return self._drive(self._managed(send))


class AsyncHeadgate(_Rules):
    """A client of Headgate for asyncio.

    By default, threads make the calls with the standard library. headgate.httpx has a
    transport for httpx. A check whose task is canceled raises CancelledError, as asyncio
    requires.
    """

    def __init__(self, url: str, token: str, *, transport: Optional[AsyncTransport] = None, threads: int = 32, **options: Any) -> None:
        super().__init__(url, token, **options)
        self._pool: Optional[Pool] = None
        self._threads: Optional[concurrent.futures.ThreadPoolExecutor] = None
        if transport is None:
            self._pool = Pool(url)
            self._threads = concurrent.futures.ThreadPoolExecutor(threads, "headgate")
            transport = self._in_thread
        self._transport = transport

    async def close(self) -> None:
        """Close the idle connections."""
        if self._pool is not None and self._threads is not None:
            self._pool.close()
            self._threads.shutdown(wait=False)
        closing = getattr(self._transport, "close", None)
        if closing is not None:
            done = closing()
            if inspect.isawaitable(done):
                await done

    async def __aenter__(self) -> AsyncHeadgate:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _in_thread(self, send: Send) -> Reply:
        assert self._pool is not None
        abort = Abort()
        arguments: Tuple[Any, ...] = (send.method, send.path, send.headers, send.body, send.deadline, abort)
        left = max(0.0, send.deadline - time.monotonic())
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._pool.send, *arguments)
        try:
            return await asyncio.wait_for(running, left)  # also when all threads are busy
        except asyncio.CancelledError:
            abort()
            raise

    async def check(self, request: Optional[CheckRequest] = None, **members: Any) -> AnyDecision:
        """Decide a request and charge its cost. See Headgate.check."""
        request = self._request(request, members)
        start = time.monotonic()
        body = encode(request.wire())
        decision: Optional[AnyDecision] = self._denials.get(body) if self._remembers(request) else None
        if decision is None:
            try:
                reply = await self._drive(self._call("/v1/check", request, body, start + self._timeout))
            except HeadgateError as error:
                decision = self._without(request, error)
            else:
                decision = self._checked(request, body, reply)
        self._decided(request, decision, start)
        return decision

    async def check_batch(self, requests: Iterable[CheckRequest], *, atomic: bool = False) -> List[AnyDecision]:
        """Decide up to 1,000 requests in one call. See Headgate.check_batch."""
        listed = list(requests)
        if not listed:
            return []
        start = time.monotonic()
        try:
            reply = await self._drive(self._call("/v1/check/batch", listed[0], self._batch_body(listed, atomic), start + self._timeout))
            decisions = self._batch(listed, reply)
        except HeadgateError as error:
            if not self._raise_errors:
                quietly(self._hooks.failed, error)
            decisions = [self._without(request, error, self._raise_errors) for request in listed]
        for request, decision in zip(listed, decisions):
            self._decided(request, decision, start)
        return decisions

    async def reserve(self, request: Optional[CheckRequest] = None, *, ttl: float, id: Optional[str] = None, **members: Any) -> AsyncReservation:
        """Decide a request like check, and keep what it charged. See Headgate.reserve."""
        request = self._request(request, members)
        start = time.monotonic()
        id = id or new_id()
        send = self._reserve(request, id, ttl, start + self._timeout)
        outcome: Union[Reply, HeadgateError]
        decision: AnyDecision
        try:
            outcome = await self._drive(call(send, self._max_retries, self._budget, self._hooks.retrying))
            decision = outcome.decision(outcome.json, outcome.rate_limit_headers())
        except HeadgateError as error:
            outcome, decision = error, self._without(request, error)
        self._decided(request, decision, start)
        return AsyncReservation(self._raw, id, request.tenant, decision, may_exist(outcome))

    async def _drive(self, steps: Steps) -> Reply:
        reply: Optional[Reply] = None
        failure: Optional[BaseException] = None
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as stop:
                result: Reply = stop.value
                return result
            except Exception as error:
                raise _typed(error) from error
            reply = failure = None
            if isinstance(step, Sleep):
                await asyncio.sleep(step.seconds)
                continue
            try:
                reply = await self._transport(step)
            except Exception as error:
                failure = error

    async def _raw(self, send: Send) -> Reply:
        return await self._drive(self._managed(send))
