"""POST /mcp message by message: versions, sessions, batches, headers, and what is no message at all."""

import json
import threading
import time

import pytest

from cells import SLOW

BOTH = {"Accept": "application/json, text/event-stream"}
META = "io.modelcontextprotocol/"


def post(server, body, **headers):
    return server.post("/mcp", body, headers={**BOTH, **{name.replace("_", "-"): value for name, value in headers.items()}})


def request(method, params=None, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params is not None else {})}


def hello(version="2025-06-18"):
    return request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})


def modern(method, number=1, version="2026-07-28", **params):
    return request(method, {**params, "_meta": {META + "protocolVersion": version, META + "clientCapabilities": {}}}, number)


def test_the_version_that_was_asked_for_is_used_where_it_is_known(server):
    for asked, given in (("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"), ("2024-11-05", "2024-11-05"),
                         ("2026-07-28", "2025-11-25"), ("1999-01-01", "2025-11-25"), ("", "2025-11-25")):
        answer = post(server, hello(asked))
        assert answer.status == 200 and answer.json["result"]["protocolVersion"] == given
        assert len(answer.headers["mcp-session-id"]) > 30
    assert post(server, request("initialize", {})).json["error"]["code"] == -32602


def test_a_session_is_known_until_it_is_ended(server):
    session = post(server, hello()).headers["mcp-session-id"]
    assert post(server, request("ping"), Mcp_Session_Id=session).json == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, Mcp_Session_Id=session).status == 202
    assert post(server, hello(), Mcp_Session_Id=session).json["error"]["code"] == -32600
    assert server.delete("/mcp").status == 400
    assert server.delete("/mcp", headers={"Mcp-Session-Id": session}).status == 204
    for answer in (post(server, request("ping"), Mcp_Session_Id=session), server.delete("/mcp", headers={"Mcp-Session-Id": session})):
        assert answer.status == 404 and answer.json["error"]["code"] == -32600


def test_the_end_of_a_session_ends_what_it_has_under_way(server):
    session = post(server, hello()).headers["mcp-session-id"]
    answers = []
    call = request("tools/call", {"name": "run_command", "arguments": {"command": "sleep 60", "timeout": 60}})
    thread = threading.Thread(target=lambda: answers.append(post(server, call, Mcp_Session_Id=session)))
    thread.start()
    time.sleep(1)
    assert server.delete("/mcp", headers={"Mcp-Session-Id": session}).status == 204
    thread.join(10 * SLOW)
    assert answers[0].json["error"]["message"] == "the session was ended"


@pytest.mark.parametrize("body, code, status", [
    ("{", -32700, 400),
    ("", -32700, 400),
    ('{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}', -32700, 400),
    ("[" * 100 + "]" * 100, -32700, 400),
    ("1", -32600, 400),
    ("{}", -32600, 400),
    ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, 400),
    ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32600, 400),
    ('{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', -32601, 200),
    ('{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}', -32601, 200),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', -32602, 200),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_code", "arguments": []}}', -32602, 200),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x"}}', -32602, 200),
    ('{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {}}', -32602, 200),
    ('{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}', -32002, 200),
])
def test_what_is_wrong_is_answered_with_its_code(server, body, code, status):
    answer = post(server, body, Content_Type="application/json")
    assert (answer.status, answer.json["error"]["code"]) == (status, code), answer
    assert answer.json["error"]["message"]


def test_other_kinds_of_bodies_and_answers_are_refused(server):
    assert post(server, json.dumps(request("ping")), Content_Type="text/plain").status == 415
    assert server.post("/mcp", request("ping"), headers={"Accept": "text/html"}).status == 406
    assert server.get("/mcp").status == 405
    assert server.request("PUT", "/mcp", b"{}").status == 405


def test_a_foreign_page_and_a_foreign_name_are_refused(server):
    assert post(server, request("ping"), Origin="https://evil.example").status == 403
    assert post(server, request("ping"), Host="evil.example").status == 403


def test_batches_are_for_the_versions_that_have_them(server):
    batch = [request("ping", number=1), {"jsonrpc": "2.0", "method": "notifications/initialized"}, request("no/such", number="b"), 7]
    answer = post(server, batch)
    assert answer.status == 200
    assert [(one["id"], "result" in one) for one in answer.json] == [(1, True), ("b", False), (None, False)]
    assert post(server, [{"jsonrpc": "2.0", "method": "notifications/initialized"}]).status == 202
    assert post(server, batch, MCP_Protocol_Version="2025-06-18").json["error"]["code"] == -32600
    assert post(server, []).status == 400
    assert post(server, [request("ping", number=number) for number in range(101)]).status == 400
    assert post(server, [hello()]).json[0]["error"]["code"] == -32600


def test_calls_of_a_batch_run_side_by_side(server):
    started = time.monotonic()
    calls = [request("tools/call", {"name": "run_command", "arguments": {"command": f"sleep 1; echo {number}"}}, number) for number in range(4)]
    answer = post(server, calls)
    assert {one["id"]: one["result"]["structuredContent"]["stdout"] for one in answer.json} == {number: f"{number}\n" for number in range(4)}
    assert time.monotonic() - started < 3.5 * SLOW


def test_a_request_without_a_session_is_heard(server):
    assert len(post(server, request("tools/list"), MCP_Protocol_Version="2025-06-18").json["result"]["tools"]) == 17


def test_an_unknown_version_is_refused_with_those_that_are_known(server):
    for answer in (post(server, request("ping"), MCP_Protocol_Version="1999-01-01"),
                   post(server, modern("tools/list", version="2099-01-01"), MCP_Protocol_Version="2099-01-01", Mcp_Method="tools/list")):
        assert answer.status == 400 and answer.json["error"]["code"] == -32022
        assert answer.json["error"]["data"]["supported"][0] == "2026-07-28"


def test_the_newest_version_needs_no_session(server):
    headers = {"MCP_Protocol_Version": "2026-07-28"}
    found = post(server, modern("server/discover"), Mcp_Method="server/discover", **headers).json["result"]
    assert found["resultType"] == "complete" and "2026-07-28" in found["supportedVersions"]
    listed = post(server, modern("tools/list"), Mcp_Method="tools/list", **headers)
    assert "mcp-session-id" not in listed.headers
    assert listed.json["result"]["ttlMs"] >= 0 and listed.json["result"]["cacheScope"] == "private"
    called = post(server, modern("tools/call", name="run_command", arguments={"command": "echo hi"}), Mcp_Method="tools/call", Mcp_Name="run_command", **headers)
    assert called.json["result"]["resultType"] == "complete" and called.json["result"]["structuredContent"]["stdout"] == "hi\n"
    missing = post(server, modern("ping"), Mcp_Method="ping", **headers)
    assert missing.status == 404 and missing.json["error"]["code"] == -32601


@pytest.mark.parametrize("headers", [
    {},
    {"MCP_Protocol_Version": "2026-07-28"},
    {"MCP_Protocol_Version": "2025-06-18", "Mcp_Method": "tools/call", "Mcp_Name": "run_command"},
    {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list", "Mcp_Name": "run_command"},
    {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": "run_code"},
    {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": "=?base64?!?="},
])
def test_headers_must_repeat_what_the_message_says(server, headers):
    answer = post(server, modern("tools/call", name="run_command", arguments={"command": "echo hi"}), **headers)
    assert answer.status == 400 and answer.json["error"]["code"] == -32020, answer


def test_a_wrapped_header_is_unwrapped(server):
    answer = post(server, modern("tools/call", name="run_command", arguments={"command": "echo hi"}), MCP_Protocol_Version="2026-07-28", Mcp_Method="tools/call",
                  Mcp_Name="=?base64?cnVuX2NvbW1hbmQ=?=")
    assert answer.status == 200


def test_a_message_of_the_newest_version_must_say_what_it_is(server):
    headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list"}
    for params in (None, {}, {"_meta": {}}, {"_meta": {META + "protocolVersion": "2026-07-28"}}, {"_meta": {META + "protocolVersion": 7}}):
        answer = post(server, request("tools/list", params), **headers)
        assert answer.status == 400 and answer.json["error"]["code"] == -32602, params


def test_many_sessions_push_out_the_unused_and_not_the_used(server):
    first = post(server, hello()).headers["mcp-session-id"]
    last = [post(server, hello()).headers["mcp-session-id"] for _ in range(256)][-1]
    assert post(server, request("ping"), Mcp_Session_Id=first).status == 404
    assert post(server, request("ping"), Mcp_Session_Id=last).status == 200


def test_tools_by_plain_http(server):
    for form, key in (("json", "inputSchema"), ("openai", "function"), ("anthropic", "input_schema")):
        assert key in server.get(f"/v1/tools?format={form}").json["tools"][0]
    assert server.get("/v1/tools?format=yaml").status == 400
    answer = server.post("/v1/tools/run_code", {"language": "python", "code": "print(42)"})
    assert answer.json["text"] == "42\n" and answer.json["result"]["exit_code"] == 0 and not answer.json["is_error"]
    wrong = server.post("/v1/tools/run_code", {"language": "python"})
    assert wrong.status == 200 and wrong.json["is_error"] and "code" in wrong.json["text"]
    unknown = server.post("/v1/tools/run_cod", {})
    assert unknown.status == 404 and "run_code" in unknown.json["detail"]
    assert server.post("/v1/tools/run_code", "{", headers={"Content-Type": "application/json"}).status == 400
    assert server.post("/v1/tools/run_code", "{}").status == 415
