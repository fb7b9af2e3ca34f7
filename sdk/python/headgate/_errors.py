"""The errors of the client."""

from __future__ import annotations

from typing import Any, Dict, List, Optional


class HeadgateError(Exception):
    """Headgate did not decide, or a management call failed."""


class UnreachableError(HeadgateError):
    """No usable answer came.

    code is one of timeout, connection, canceled, unavailable (503: nothing was decided or
    charged), and protocol (the answer is not one of Headgate).
    """

    kind = "unreachable"

    def __init__(self, code: str, cause: object) -> None:
        super().__init__(f"headgate: no decision ({code}): {cause}")
        self.code = code
        if isinstance(cause, BaseException):
            self.__cause__ = cause


class ProblemError(HeadgateError):
    """An RFC 9457 problem that Headgate answered."""

    kind = "problem"

    def __init__(self, status: int, title: str, problem: Optional[Dict[str, Any]] = None) -> None:
        problem = problem or {}
        self.status = status
        self.title = title
        self.type: str = problem.get("type") or "about:blank"
        self.detail: Optional[str] = problem.get("detail")
        #: Distinguishes problems of one type.
        self.code: Optional[str] = problem.get("code")
        self.request_id: Optional[str] = problem.get("request_id")
        #: The invalid members, each with pointer and detail.
        self.errors: List[Dict[str, str]] = problem.get("errors") or []
        text = f"headgate: {status} {title}"
        if self.detail:
            text += f": {self.detail}"
        text += "".join(f"; {fault.get('pointer')}: {fault.get('detail')}" for fault in self.errors)
        if self.request_id:
            text += f" (request {self.request_id})"
        super().__init__(text)

    @property
    def rejects(self) -> bool:
        """Whether the contents of the request caused the problem.

        on_unreachable does not allow such a request, because its sender could have chosen the
        contents.
        """
        return 400 <= self.status < 500 and self.status not in (401, 408, 429)
