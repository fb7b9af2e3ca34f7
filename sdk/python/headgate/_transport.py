"""The connections of the standard library."""

from __future__ import annotations

import contextlib
import http.client
import io
import select
import socket
import ssl
import threading
import time
from typing import Any, Dict, List, Optional
from urllib.parse import urlsplit

from ._decision import Reply
from ._errors import UnreachableError

MAX_ANSWER = 8 << 20


class NotConnected(Exception):
    """No connection was made: the server received nothing."""


class _Raw(io.RawIOBase):
    """Reads from a socket until a deadline. http.client's own time-out is for each read."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


class _Socket:
    """What http.client.HTTPResponse uses of a socket."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._raw = _Raw(sock, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._raw)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("no answer within the deadline")
    return left


def _read(response: http.client.HTTPResponse) -> Reply:
    response.begin()
    answer = response.read(MAX_ANSWER + 1)
    if len(answer) > MAX_ANSWER:
        raise UnreachableError("protocol", f"the answer is larger than {MAX_ANSWER} bytes")
    if response.length:
        raise http.client.IncompleteRead(answer, response.length)
    return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, answer)


class Abort:
    """Ends a call from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: Optional[socket.socket] = None
        self._aborted = False

    def begin(self, sock: socket.socket) -> None:
        with self._lock:
            self._sock = sock
            if self._aborted:
                raise ConnectionAbortedError("the call was canceled")

    def end(self) -> None:
        with self._lock:
            self._sock = None

    def __call__(self) -> None:
        with self._lock:
            self._aborted = True
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the connection ended before


class Pool:
    """Connections to one server. Threads share them."""

    def __init__(self, url: str, context: Optional[ssl.SSLContext] = None, size: int = 64) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._netloc = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._tls = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._size = size
        self._lock = threading.Lock()
        self._idle: List[socket.socket] = []
        self._closed = False

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for sock in idle:
            sock.close()

    def _take(self, deadline: float) -> socket.socket:
        while True:
            with self._lock:
                sock = self._idle.pop() if self._idle else None
            if sock is None:
                return self._connect(deadline)
            try:
                # A connection that can be read was closed by the server.
                if not select.select([sock], [], [], 0)[0]:
                    return sock
            except (OSError, ValueError):
                pass
            sock.close()

    def _connect(self, deadline: float) -> socket.socket:
        try:
            sock = socket.create_connection((self._host, self._port), timeout=_left(deadline))
        except socket.timeout:
            raise
        except OSError as error:
            raise NotConnected(str(error)) from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(_left(deadline))
                sock = self._tls.wrap_socket(sock, server_hostname=self._host)
        except BaseException:
            sock.close()
            raise
        return sock

    def send(self, method: str, path: str, headers: Dict[str, str], body: Optional[bytes], deadline: float, abort: Optional[Abort] = None) -> Reply:
        """Send one call and read its answer. It does not follow redirects."""
        sock = self._take(deadline)
        keep = False
        try:
            if abort is not None:
                abort.begin(sock)
            sock.settimeout(_left(deadline))
            sock.sendall(self._head(method, path, headers, body) + (body or b""))
            response = http.client.HTTPResponse(_Socket(sock, deadline), method=method)  # type: ignore[arg-type]
            with contextlib.closing(response):
                reply = _read(response)
                keep = not response.will_close
            return reply
        finally:
            if abort is not None:
                abort.end()
            if keep:
                self._keep(sock)
            else:
                sock.close()

    def _keep(self, sock: socket.socket) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < self._size:
                self._idle.append(sock)
                return
        sock.close()

    def _head(self, method: str, path: str, headers: Dict[str, str], body: Optional[bytes]) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body or b'')}")
        for line in lines:
            if "\r" in line or "\n" in line:
                raise ValueError("headgate: a header has a line break")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


