"""The Model Context Protocol: 92 of the list. Two tenants of one server; what one has, the other must not reach by any handle."""

import threading
import time

from service import Service
from suite import SLOW, case

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}}


class Tenant:
    def __init__(self, server, name):
        self.server, self.headers = server, {"Accept": "application/json, text/event-stream", "Authorization": "Bearer " + server.key(name)}
        self.session, self.number = None, 0

    def begin(self):
        self.session = self.say("initialize", HELLO).headers.get("mcp-session-id")
        return self

    def say(self, method, params=None, session=None, number=None, within=60):
        self.number += 1
        headers = dict(self.headers)
        if session or self.session:
            headers["Mcp-Session-Id"] = session or self.session
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not method.startswith("notifications/"):
            message["id"] = number or self.number
        return self.server.request("POST", "/mcp", message, headers, within=within)

    def call(self, tool, **arguments):
        return self.say("tools/call", {"name": tool, "arguments": arguments})


def refused(answer):
    """An error of the protocol, or a result that says it went wrong."""
    return "error" in answer.json or answer.json.get("result", {}).get("isError") is True


def structured(answer):
    return answer.json.get("result", {}).get("structuredContent", {})


def foreign(trial, ada, bob):
    run = structured(ada.call("run_code", language="python", code="open('a','w').write('secret'); print('mine')", collect=["a"]))["id"]
    sandbox = structured(ada.call("create_sandbox", files={"note": "mine"}))["id"]
    uri = "hotcell://sandbox/%s/workspace/note" % sandbox
    tries = {
        "a run of another's": lambda who: who.call("get_history", run=run),
        "its file": lambda who: who.say("resources/read", {"uri": "hotcell://run/%s/a" % run}),
        "a sandbox of another's": lambda who: who.call("run_command", sandbox=sandbox, command="cat note"),
        "its file by the tool": lambda who: who.call("read_file", sandbox=sandbox, path="note"),
        "its file as a resource": lambda who: who.say("resources/read", {"uri": uri}),
        "its end": lambda who: who.call("delete_sandbox", sandbox=sandbox),
    }
    for name, attempt in list(tries.items()):
        answer = attempt(bob)
        trial.check(refused(answer) and b"mine" not in answer.body and b"secret" not in answer.body, "%s is refused: %s" % (name, answer))
    trial.check(not structured(bob.call("list_sandboxes")).get("sandboxes"), "and not listed")
    for name, attempt in tries.items():
        trial.control(not refused(attempt(ada)), "%s works for its owner" % name)


def sessions(trial, ada, bob):
    trial.control(ada.say("ping").status == 200, "a session works for its owner")
    for name, answer in (("used", bob.say("ping", session=ada.session)),
                         ("ended", bob.server.request("DELETE", "/mcp", headers=dict(bob.headers, **{"Mcp-Session-Id": ada.session})))):
        trial.check(answer.status == 404, "a session of another's cannot be %s: %s" % (name, answer))
    keyless = ada.server.request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Mcp-Session-Id": ada.session})
    trial.check(keyless.status == 401, "a session is no key: %s" % keyless)
    trial.check(ada.say("ping").status == 200, "and it goes on")


def batches(trial, ada):
    old = Tenant.__new__(Tenant)
    old.server, old.headers, old.session, old.number = ada.server, dict(ada.headers), None, 0
    few = [{"jsonrpc": "2.0", "id": i, "method": "ping"} for i in range(3)]
    answer = ada.server.request("POST", "/mcp", few, old.headers)
    trial.control(len(answer.json.get("list", [])) == 3, "a batch of three is answered")
    calls = [{"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": "run_command", "arguments": {"command": "sleep 5"}}} for i in range(10000)]
    before = ada.server.memory()
    answer = ada.server.request("POST", "/mcp", calls, old.headers)
    trial.check(answer.status == 400 and "error" in answer.json, "one of ten thousand is refused: %s" % answer)
    deep = "[" * 100000 + "]" * 100000
    answer = ada.server.request("POST", "/mcp", deep, dict(old.headers, **{"Content-Type": "application/json"}))
    trial.check(answer.status == 400, "and one that is a hundred thousand deep: %s" % answer)
    trial.check(ada.server.memory() - before < 64 << 20, "memory stays")


def cancels(trial, ada, bob):
    answers = {}

    def run(who, number):
        answers[number] = who.say("tools/call", {"name": "run_command", "arguments": {"command": "echo begun; sleep 8; echo done", "timeout": 60}}, number=number)

    threads = [threading.Thread(target=run, args=(ada, number)) for number in (777, 778)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    bob.say("notifications/cancelled", {"requestId": 777, "reason": "not mine"})
    ada.say("notifications/cancelled", {"requestId": 778})
    threads[1].join(30 * SLOW)
    trial.check(not threads[1].is_alive() and time.monotonic() - started < 7 * SLOW and b"done" not in answers[778].body, "a cancelled run ends at once")
    threads[0].join(60 * SLOW)
    trial.check(structured(answers[777]).get("stdout") == "begun\ndone\n", "one that another tried to cancel goes on: %s" % answers[777])
    killed = [one["status"] for one in structured(ada.call("get_history", limit=10))["runs"]]
    trial.check("killed" in killed, "and is recorded as killed")


@case(92, "MCP: foreign handles, a batch of 10k, cancel mid-run", seconds=120)
def mcp(trial):
    with Service(trial) as server:
        ada, bob = Tenant(server, "ada").begin(), Tenant(server, "bob").begin()
        foreign(trial, ada, bob)
        sessions(trial, ada, bob)
        batches(trial, ada)
        cancels(trial, ada, bob)
        trial.check(server.get("/readyz").status == 200, "the server is as before")
