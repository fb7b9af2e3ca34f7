"""The scenarios of sdk/conformance, which starts the servers and runs this test."""

import asyncio
import concurrent.futures
import dataclasses
import json
import os
import random
import re
import threading
import time
import unittest
import urllib.request

from headgate import AsyncHeadgate, CheckRequest, Headgate, HeadgateError, Hooks, ProblemError, UnreachableError

with open(os.environ["HEADGATE_SCENARIOS"], encoding="utf-8") as file:
    SCENARIOS = json.load(file)["scenarios"]


class Mismatch(Exception):
    pass


class Run:
    """One run of a scenario with one of the clients."""

    def __init__(self, scenario, asynchronous, transport=None):
        self.scenario = scenario
        self.asynchronous = asynchronous
        self.id = f"{random.getrandbits(60):x}"
        self.retries = 0
        target = scenario.get("target", "headgate")
        self.faults = f"{os.environ['HEADGATE_FAULTS_URL']}/{scenario['name']}/{self.id}" if target == "faults" else None
        url = self.faults or os.environ["HEADGATE_REFUSED_URL" if target == "refused" else "HEADGATE_URL"]
        given = scenario.get("client", {})
        options = {"hooks": Hooks(retrying=lambda error, seconds: self.retried())}
        if given.get("timeout_ms", 0) is not None:
            options["timeout"] = given.get("timeout_ms", 10_000) / 1000
        if "on_unreachable" in given:
            mode = given["on_unreachable"]
            options["on_unreachable"] = (lambda request, error: isinstance(error, Exception) and request.path == "/allow") if mode == "callback" else mode
        for name in ("max_retries", "remember_denials"):
            if name in given:
                options[name] = given[name]
        if transport is not None:
            options["transport"] = transport(url)
        token = {"tenant": os.environ["HEADGATE_KEY"], "wrong": "hg_op_wrong"}.get(given.get("token"), os.environ["HEADGATE_TOKEN"])
        self.client = (AsyncHeadgate if asynchronous else Headgate)(url, token, **options)

    def retried(self):
        self.retries += 1

    def received(self):
        if self.faults is None:
            return []
        with urllib.request.urlopen(f"{self.faults}/calls") as response:
            return json.load(response)

    def request(self, members):
        text = json.dumps(members).replace("$user", "u" + self.id).replace("$run", self.id)
        return CheckRequest(**json.loads(text))

    def check(self, step):
        request = self.request(step["check"])
        if self.asynchronous:
            return asyncio.run(self.check_async(request, step))
        start = time.monotonic()
        decision = self.client.check(request)
        while len(self.received()) < step.get("until_calls", 0) and time.monotonic() - start < 60:
            decision = self.client.check(request)
        return decision

    async def check_async(self, request, step):
        start = time.monotonic()
        if "cancel_when_calls" in step:
            task = asyncio.ensure_future(self.client.check(request))
            while len(await asyncio.to_thread(self.received)) < step["cancel_when_calls"]:
                pass
            task.cancel()
            try:
                return await task
            except asyncio.CancelledError:
                return None
        decision = await self.client.check(request)
        while len(await asyncio.to_thread(self.received)) < step.get("until_calls", 0) and time.monotonic() - start < 60:
            decision = await self.client.check(request)
        return decision

    def done(self, value):
        """Return the result of a call of the client, which is a coroutine with asyncio."""
        return asyncio.run(value) if asyncio.iscoroutine(value) else value

    def reserve(self, step):
        members = dict(step["reserve"])
        options = {"ttl": members.pop("ttl_ms") / 1000}
        if "id" in members:
            options["id"] = members.pop("id").replace("$run", self.id)
        self.held = self.done(self.client.reserve(self.request(members), **options))
        return {**shown(self.held.decision), "held": self.held.held}

    def change(self, step):
        """Change the last reservation, and return what became of it."""
        try:
            if "settle" in step:
                self.done(self.held.settle(**step["settle"]))
            elif "extend" in step:
                self.done(self.held.extend(step["extend"]["ttl_ms"] / 1000))
            else:
                self.done(self.held.release())
        except HeadgateError as error:
            return {"error": shown_error(error)}
        return {"error": None}

    def batch(self, step):
        requests = [self.request(members) for members in step["batch"]]
        atomic = step.get("atomic", False)
        if self.asynchronous:
            return asyncio.run(self.client.check_batch(requests, atomic=atomic))
        return self.client.check_batch(requests, atomic=atomic)

    def play(self):
        for number, step in enumerate(self.scenario["steps"], 1):
            at = f"step {number}"
            start = time.monotonic()
            if "batch" in step:
                got = [shown(decision) for decision in self.batch(step)]
            elif "reserve" in step:
                got = self.reserve(step)
            elif "check" not in step:
                got = self.change(step)
            else:
                decision = self.check(step)
                got = None if decision is None else shown(decision)
            elapsed = (time.monotonic() - start) * 1000
            if got is not None:  # a task that is canceled has no result
                match(at, step["expect"], got)
            if not step.get("min_ms", 0) - 2 <= elapsed <= step.get("max_ms", 1e9):
                raise Mismatch(f"{at} took {elapsed:.0f} ms")
        calls = self.received()
        counts = {"expect_retries": self.retries, "expect_calls": len(calls), "expect_connections": len({call["remote"] for call in calls})}
        for name, count in counts.items():
            if name in self.scenario:
                match(name, self.scenario[name], count)
        if "expect_bodies" in self.scenario and [call["body"] for call in calls] != self.scenario["expect_bodies"]:
            raise Mismatch(f"the bodies are {[call['body'] for call in calls]}")
        if "expect_requests" in self.scenario and [f"{call['method']} {call['path']}" for call in calls] != self.scenario["expect_requests"]:
            raise Mismatch(f"the requests are {[(call['method'], call['path']) for call in calls]}")
        for call in calls:
            match("headers", self.scenario.get("expect_headers", {}), call["headers"])
        if self.asynchronous:
            asyncio.run(self.client.close())
        else:
            self.client.close()


def shown(decision):
    """Return a decision in the form of the file."""
    found = {**dataclasses.asdict(dataclasses.replace(decision, error=None)), "kind": decision.kind, "allowed": decision.allowed}
    found["error"] = shown_error(decision.error)
    return found


def shown_error(error):
    """Return an error in the form of the file."""
    if isinstance(error, UnreachableError):
        return {"kind": error.kind, "code": error.code}
    if isinstance(error, ProblemError):
        return {"kind": error.kind, "status": error.status, "code": error.code, "errors": error.errors, "request_id": error.request_id}
    return None


def match(at, want, got):
    """Raise if got differs from want; scenarios.json has the rules."""
    if isinstance(want, dict):
        if "$match" in want:
            if not isinstance(got, str) or not re.search(want["$match"], got):
                raise Mismatch(f"{at} is {got!r}, want a match of {want['$match']}")
        elif "$min" in want:
            if got is None or not want["$min"] <= got <= want["$max"]:
                raise Mismatch(f"{at} is {got}, want {want['$min']} to {want['$max']}")
        else:
            if not isinstance(got, dict):
                raise Mismatch(f"{at} is {got!r}, want an object")
            for name, value in want.items():
                match(f"{at}.{name}", value, got.get(name))
    elif isinstance(want, list):
        if len(got) != len(want):
            raise Mismatch(f"{at} has {len(got)} items, want {len(want)}")
        for i, value in enumerate(want):
            match(f"{at}[{i}]", value, got[i])
    elif want != got:
        raise Mismatch(f"{at} is {got!r}, want {want!r}")


class Conformance(unittest.TestCase):
    def play_all(self, asynchronous, skip=(), transport=None):
        scenarios = [s for s in SCENARIOS if s["name"] not in skip]
        self.assertGreaterEqual(len(scenarios), 40)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            running = {s["name"]: threads.submit(lambda s=s: Run(s, asynchronous, transport).play()) for s in scenarios}
        for name, future in running.items():
            with self.subTest(name):
                future.result()

    def test_synchronous(self):
        # A synchronous check cannot be canceled.
        self.play_all(False, {"cancellation"})

    def test_asyncio(self):
        self.play_all(True)

    def test_httpx(self):
        from headgate.httpx import Httpx

        # The deadline of httpx is for each read.
        self.play_all(False, {"cancellation", "timeout_in_the_body"}, Httpx)


class Management(unittest.TestCase):
    def test_a_tenants_life(self):
        with Headgate(os.environ["HEADGATE_URL"], os.environ["HEADGATE_TOKEN"]) as client:
            m = client.manage
            slug = f"py-{random.getrandbits(60):x}"
            made = m.create_tenant({"slug": slug, "tenant": {"name": "Python é"}})
            self.assertEqual(made.data["slug"], slug)
            self.assertTrue(made.etag and made.request_id)
            changed = m.patch_tenant(slug, {"plan": "conformance"}, if_match=made.etag)
            self.assertEqual(changed.data["tenant"]["plan"], "conformance")
            with self.assertRaises(ProblemError) as raised:
                m.patch_tenant(slug, {"plan": None}, if_match=made.etag)
            self.assertEqual(raised.exception.status, 412)
            for bad in ("no/such?tenant", ".."):
                with self.assertRaises(ProblemError):
                    m.get_tenant(bad)
            self.assertTrue(m.list_tenants(limit=2, q="Python").data["data"])
            self.assertEqual(len(m.get_usage(slug, policy="login-per-user", key={"user": "u 1&"}).data["policies"]), 1)
            explained = m.explain({"tenant": slug, "method": "POST", "path": "/v1/login", "attributes": {"user": "u1"}})
            self.assertEqual(explained.data["decision"]["kind"], "decision")
            self.assertIsNone(m.delete_tenant(slug, if_match=changed.etag).data)


class Threads(unittest.TestCase):
    def test_threads_share_a_client(self):
        with Headgate(os.environ["HEADGATE_URL"], os.environ["HEADGATE_TOKEN"], timeout=30) as client:
            failures = []

            def work():
                for _ in range(20):
                    decision = client.check(tenant="conformance", method="GET", path="/v1/generous")
                    if decision.kind != "decision":
                        failures.append(decision)

            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
