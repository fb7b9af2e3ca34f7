"""Each middleware, with a server that stands for Headgate and denies the path /denied."""

import asyncio
import http.server
import io
import json
import logging
import threading
import unittest
from unittest import mock

import fastapi
import flask
import httpx

import headgate.asgi
import headgate.fastapi
import headgate.flask
import headgate.wsgi
from headgate import AsyncHeadgate, CheckRequest, Headgate, Hooks, UnreachableError

DECISION = {"kind": "decision", "allowed": True, "decision_id": "d-1", "tenant": "acme", "mode": "enforce", "reason": "ok"}
DECISION.update({"retry_after_ms": 0, "delay_ms": 0, "degraded": False, "limits": []})
DENIAL = {**DECISION, "kind": "denial", "allowed": False, "status": 429, "reason": "over_limit", "retry_after_ms": 1340, "plan": "pro"}
DENIAL.update({"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota exceeded"})
DENIAL.update({"detail": "over the limit of policy p", "violated-policies": ["p"]})
OPTIONS = {"tenant": lambda request: "acme", "attributes": lambda request: {"user": "u1"}, "cost": lambda request: 3}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    last = None

    def do_POST(self):
        Handler.last = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        denied = Handler.last["path"] == "/denied"
        delay = {"/waits": 3_600_000, "/waits-briefly": 1}.get(Handler.last["path"], 0)
        body = json.dumps(DENIAL if denied else {**DECISION, "delay_ms": delay}).encode()
        self.send_response(429 if denied else 200)
        for name, value in (("RateLimit", '"p";r=0;t=2'), ("RateLimit-Policy", '"p";q=5'), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        if denied:
            self.send_header("Retry-After", "2")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def wsgi_app(client, **options):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain"), ("X-Kind", environ["headgate.decision"].kind if "headgate.decision" in environ else "")])
        return [b"served"]

    return headgate.wsgi.HeadgateMiddleware(application, client, **options)


def flask_app(client, **options):
    app = flask.Flask(__name__)
    headgate.flask.limit(app, client, **options)
    app.add_url_rule("/<path:p>", "view", lambda p: "served")
    return app


def asgi_app(client, **options):
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"served"})

    return headgate.asgi.HeadgateMiddleware(application, client, **options)


def fastapi_app(client, **options):
    app = fastapi.FastAPI()
    headgate.fastapi.install(app)

    @app.get("/{p:path}", dependencies=[fastapi.Depends(headgate.fastapi.limit(client, **options))])
    async def view(p: str):
        return fastapi.responses.PlainTextResponse("served") if p == "plain" else "served"

    return app


class Middleware(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        cls.server.daemon_threads = True
        cls.thread = threading.Thread(target=cls.server.serve_forever)
        cls.thread.start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.thread.join()
        cls.server.server_close()

    def get(self, make, path, **options):
        """Return the response of an application made by make."""
        Handler.last = None
        if make in (wsgi_app, flask_app):
            with Headgate(self.url, "hg_op_x", timeout=10) as client:
                with httpx.Client(transport=httpx.WSGITransport(make(client, **options)), base_url="http://testserver") as browser:
                    return browser.get(path)

        async def go():
            async with AsyncHeadgate(self.url, "hg_op_x", timeout=10) as client:
                transport = httpx.ASGITransport(make(client, **options))
                async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as browser:
                    return await browser.get(path)

        return asyncio.run(go())

    def test_all(self):
        for make in (wsgi_app, flask_app, asgi_app, fastapi_app):
            with self.subTest(make.__name__, case="allowed"):
                response = self.get(make, "/items/a%20b?q=1", **OPTIONS)
                self.assertEqual((response.status_code, response.text.strip('"')), (200, "served"))
                self.assertEqual(response.headers["RateLimit"], '"p";r=0;t=2')
                self.assertEqual(response.headers["RateLimit-Policy"], '"p";q=5')
                want = {"tenant": "acme", "method": "GET", "path": "/items/a%20b", "attributes": {"user": "u1"}, "cost": 3}
                self.assertEqual(Handler.last, want)
            with self.subTest(make.__name__, case="denied"):
                response = self.get(make, "/denied", **OPTIONS)
                self.assertEqual(response.status_code, 429)
                self.assertTrue(response.headers["Content-Type"].startswith("application/problem+json"))
                self.assertEqual(response.headers["Retry-After"], "2")
                self.assertEqual(response.headers["RateLimit"], '"p";r=0;t=2')
                want = {"type": DENIAL["type"], "title": DENIAL["title"], "status": 429, "detail": DENIAL["detail"]}
                self.assertEqual(response.json(), {**want, "violated-policies": ["p"], "decision_id": "d-1"})
            with self.subTest(make.__name__, case="shadow"):
                text = io.StringIO()
                log = logging.Logger("test")
                log.addHandler(logging.StreamHandler(text))
                response = self.get(make, "/denied", shadow=True, log=log)
                self.assertEqual((response.status_code, response.text.strip('"')), (200, "served"))
                self.assertNotIn("RateLimit", response.headers)
                self.assertNotIn("Retry-After", response.headers)
                self.assertEqual(text.getvalue(), "headgate would deny GET /denied: over_limit\n")
            with self.subTest(make.__name__, case="waits"):
                slept = []

                async def wait(seconds):
                    slept.append(seconds)

                with mock.patch("time.sleep", slept.append), mock.patch("asyncio.sleep", wait):
                    for path, options in (("/waits", {}), ("/waits-briefly", {}), ("/items", {}), ("/denied", {}), ("/waits", {"shadow": True})):
                        self.get(make, path, **options)
                self.assertEqual([s for s in slept if s > 0], [3600, 0.001])
            with self.subTest(make.__name__, case="skip"):
                self.assertEqual(self.get(make, "/healthz", skip=lambda request: True).status_code, 200)
                self.assertIsNone(Handler.last)

    def test_a_canceled_request_is_not_served(self):
        for make in (asgi_app, fastapi_app):
            with self.subTest(make.__name__):
                served, decided = [], []

                async def go():
                    waiting = asyncio.Event()
                    hooks = Hooks(decided=lambda *_: (decided.append(1), waiting.set()))
                    async with AsyncHeadgate(self.url, "hg_op_x", timeout=10, hooks=hooks) as client:
                        app = make(client)

                        async def send(message):
                            served.append(message)

                        async def receive():
                            return {"type": "http.request", "body": b"", "more_body": False}

                        scope = {"type": "http", "method": "GET", "path": "/waits", "raw_path": b"/waits", "query_string": b"", "headers": []}
                        request = asyncio.ensure_future(app(scope, receive, send))
                        await waiting.wait()
                        request.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await request

                asyncio.run(go())
                self.assertEqual((len(decided), served), (1, []))


class Client(unittest.TestCase):
    def test_options_are_validated(self):
        good = {"url": "http://x", "token": "x"}
        for word, bad in (("url", {"url": "ftp://x"}), ("token", {"token": "a b"}), ("timeout", {"timeout": -1})):
            with self.assertRaisesRegex(ValueError, word):
                Headgate(**{**good, **bad})
        for word, bad in (("on_unreachable", {"on_unreachable": "ajar"}), ("max_retries", {"max_retries": -1})):
            with self.assertRaisesRegex(ValueError, word):
                Headgate(**good, **bad)

    def test_errors_are_raised_if_asked(self):
        with Headgate("http://127.0.0.1:1", "x", max_retries=0, raise_errors=True, timeout=10) as client:
            with self.assertRaises(UnreachableError) as raised:
                client.check(path="/x")
            self.assertEqual(raised.exception.code, "connection")
            with self.assertRaises(UnreachableError):
                client.check_batch([CheckRequest(path="/x")])

    def test_hooks_and_callbacks_that_raise_fail_no_request(self):
        def broken(*_):
            raise RuntimeError("broken")

        hooks = Hooks(decided=broken, failed=broken, retrying=broken)
        with Headgate("http://127.0.0.1:1", "x", on_unreachable=broken, hooks=hooks, timeout=10) as client:
            self.assertFalse(client.check(path="/x").allowed)


if __name__ == "__main__":
    unittest.main()
