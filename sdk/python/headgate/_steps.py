"""The rules of a call, without input or output.

call is a generator: it yields Send and Sleep, and its driver, which is synchronous or
asynchronous, sends back the reply or throws the error. Both clients have the same rules.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, Generator, Optional, Union

from ._decision import Denial, Reply
from ._errors import HeadgateError, UnreachableError
from ._transport import NotConnected

RETRY_BASE = 0.02  # seconds of the jittered wait before a retry
RETRY_MAX = 1.0
BUDGET_MAX = 10.0  # retries that can follow each other
BUDGET_CALL = 0.1  # retries that each call adds: a tenth of the calls
REMEMBER_MAX = 1.0  # seconds
TIMEOUTS = (socket.timeout, asyncio.TimeoutError, TimeoutError)  # one class in later versions of Python
IDEMPOTENCY_KEY = "Idempotency-Key"
DENIALS_LIMIT = 10_000  # denials of a client, so that many keys do not fill the memory


@dataclass(frozen=True)
class Send:
    method: str
    path: str
    headers: Dict[str, str]
    body: Optional[bytes]
    deadline: float
    #: The server acts only once on repetitions. A call with an Idempotency-Key is idempotent too.
    idempotent: bool = False


@dataclass(frozen=True)
class Sleep:
    seconds: float


Steps = Generator[Union[Send, Sleep], Optional[Reply], Reply]


class Budget:
    """Bounds the retries to a tenth of the calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = BUDGET_MAX

    def earn(self) -> None:
        with self._lock:
            self._tokens = min(BUDGET_MAX, self._tokens + BUDGET_CALL)

    def spend(self) -> bool:
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


def quietly(hook: Optional[Callable[..., object]], *arguments: object) -> None:
    """Call a hook. A hook that raises fails no request."""
    if hook is not None:
        try:
            hook(*arguments)
        except Exception:  # the hook's own error
            pass


def call(send: Send, max_retries: int, budget: Budget, retrying: Optional[Callable[[HeadgateError, float], None]]) -> Steps:
    """Send a call, and repeat it if nothing was charged, or if it is idempotent."""
    budget.earn()
    tries = 0
    while True:
        wait = random.random() * min(RETRY_MAX, RETRY_BASE * 2**tries)
        reply: Optional[Reply] = None
        error: HeadgateError
        try:
            reply = yield send
            assert reply is not None
            seconds = reply.headers.get("retry-after", "")
            # A 429 that is a problem limits calls of the API. A denial is the answer to a check.
            later = reply.status == 503 or (reply.status == 429 and isinstance(reply.json, dict) and reply.json.get("kind") == "problem")
            if not later or not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10):
                return reply
            wait += int(seconds)
            error = reply.error(reply.json)
        except Exception as cause:
            if isinstance(cause, TIMEOUTS) or not (isinstance(cause, NotConnected) or send.idempotent or IDEMPOTENCY_KEY in send.headers):
                raise
            error = UnreachableError("connection", cause)
        if tries >= max_retries or time.monotonic() + wait >= send.deadline or not budget.spend():
            if reply is not None:
                return reply
            raise error
        quietly(retrying, error, wait)
        tries += 1
        yield Sleep(wait)


class Denials:
    """Remembers denied requests until their retry time, by the monotonic clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Dict[bytes, tuple[Denial, float, float]] = {}

    def get(self, body: bytes) -> Optional[Denial]:
        now = time.monotonic()
        with self._lock:
            kept = self._known.get(body)
            if kept is None:
                return None
            denial, at, until = kept
            if now >= until:
                del self._known[body]
                return None
        return denial.after((now - at) * 1000)

    def put(self, body: bytes, denial: Denial) -> None:
        """Remember a denial by a limit or a block. Other denials have no retry time.

        A denial by a concurrency limit is not remembered, because any holder can release its
        places at any time.
        """
        after = denial.retry_after_ms
        if not after or denial.reason not in ("over_limit", "blocked"):
            return
        if any(limit["algorithm"] == "concurrency" and not limit["allowed"] for limit in denial.limits):
            return
        now = time.monotonic()
        with self._lock:
            if len(self._known) >= DENIALS_LIMIT:
                self._known = {key: kept for key, kept in self._known.items() if now < kept[2]}
                if len(self._known) >= DENIALS_LIMIT:
                    return
            self._known[body] = (denial, now, now + min(after / 1000, REMEMBER_MAX))
