"""The control endpoints, for a server in another process; and the journal's own promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, Script, call, key_fingerprint

KEY = {"authorization": "Bearer secret-key"}


@pytest.fixture
def client(model_server: ModelServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=model_server.url, trust_env=False, verify=False) as client:
        yield client


def ask(client: httpx.Client, text: str, **more: Any) -> httpx.Response:
    return client.post("/openai/v1/responses", json={"model": "m", "input": text, **more}, headers=KEY)


def said(answer: httpx.Response) -> str:
    return str(answer.json()["output"][0]["content"][0]["text"])


def test_a_script_comes_in_over_http(client: httpx.Client) -> None:
    tool: dict[str, Any] = {"type": "function", "name": "add", "parameters": {}, "strict": None}
    replies = [
        {
            "calls": [{"name": "add", "arguments": {"a": 1}}],
            "thinking": "Hm.",
            "usage": {"input": 10, "output": 3, "cached": 4},
            "faults": [{"kind": "status", "status": 500}],
        },
        "text",
    ]
    assert client.post("/_script", json={"user": "^hi", "name": "greet", "replies": replies}).status_code == 204
    assert ask(client, "hi", tools=[tool]).status_code == 500
    answer = ask(client, "hi", tools=[tool]).json()
    assert [o["type"] for o in answer["output"]] == ["reasoning", "function_call"]
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == 4


def test_a_fault_comes_in_over_http(client: httpx.Client) -> None:
    fault = {"kind": "status", "status": 503, "times": 2, "user": "Ada", "turn": 1}
    assert client.post("/_faults", json=fault).status_code == 204
    assert [ask(client, "My name is Ada").status_code for _ in range(3)] == [503, 503, 200]
    assert ask(client, "My name is Bob").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/_script", {"user": "x"}, "needs `replies`"),
        ("/_script", {"user": "(", "replies": ["x"]}, "not a regular expression"),
        ("/_script", {"usr": "x", "replies": ["x"]}, "no field 'usr'"),
        ("/_script", {"replies": []}, "no replies"),
        ("/_script", {"replies": [{"txt": "x"}]}, "no field 'txt'"),
        ("/_script", {"replies": [{"text": "x", "structured": {}}]}, "either text or a structured value"),
        ("/_script", {"replies": [{"calls": [{"nme": "x"}]}]}, "no field 'nme'"),
        ("/_script", {"replies": [{"usage": {"in": 1}}]}, "no field 'in'"),
        ("/_faults", {"kind": "explode"}, "no fault 'explode'"),
        ("/_faults", {"kind": "status"}, "needs an HTTP error status"),
        ("/_faults", {"kind": "slow", "second": 1}, "no field 'second'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(
    client: httpx.Client, path: str, body: dict[str, Any], problem: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]


def test_the_journal_can_be_read_and_cleared_over_http(client: httpx.Client, model_server: ModelServer) -> None:
    ask(client, "My name is Ada")
    ask(client, "Sing!")
    good, bad = client.get("/_journal").json()["entries"]
    assert (good["number"], good["wire"], good["model"], good["turn"], good["rule"], good["status"]) == (
        1,
        "openai-responses",
        "m",
        1,
        "names",
        200,
    )
    assert good["body"] == {"model": "m", "input": "My name is Ada"}
    assert good["headers"]["authorization"] == key_fingerprint("secret-key")
    assert good["response_id"].startswith("resp_")
    assert good["usage"] == {"input": 4, "output": 6, "cached": 0, "cache_written": 0, "reasoning": 0}
    assert bad["status"] == 400
    assert "Sing!" in bad["error"]
    client.delete("/_journal")
    assert len(model_server.journal) == 0
    assert client.get("/_health").json()["strict"] is True


def test_clearing_forgets_everything(client: httpx.Client, model_server: ModelServer) -> None:
    model_server.script("hi", "scripted")
    model_server.fault(Fault.error(500, times=None))
    kept = ask(client, "My name is Ada")
    assert kept.status_code == 500
    assert client.delete("/_state").status_code == 204
    assert ask(client, "hi").status_code == 400
    assert ask(client, "My name is Ada").status_code == 200
    assert model_server.journal.all[0].number == 1


def test_waiting_for_requests_returns_as_soon_as_they_came_in(client: httpx.Client, model_server: ModelServer) -> None:
    asking = threading.Thread(target=ask, args=(client, "My name is Ada"))
    asking.start()
    model_server.journal.wait_for(1, user="My name is Ada")
    asking.join()
    with pytest.raises(TimeoutError, match="1 of 2 requests"):
        model_server.journal.wait_for(2, timeout=0.01)


def test_the_journal_prints_one_line_for_each_request(client: httpx.Client, model_server: ModelServer) -> None:
    model_server.fault(Fault.rate_limit())
    ask(client, "My name is Ada")
    client.get("/nowhere")
    first, second = str(model_server.journal).splitlines()
    assert "429" in first
    assert "fault=429" in first
    assert "GET /nowhere 404" in second
    assert len(model_server.journal) == 1
    assert [e.fault for e in model_server.journal] == ["429"]
    assert model_server.journal.count(status=429, fault="429", turn=1, wire="openai-responses", rule="") == 1


def test_a_body_that_is_no_json_object_is_refused(client: httpx.Client) -> None:
    for content in (b"{", b"[]"):
        answer = client.post("/openai/v1/responses", content=content, headers=KEY)
        assert answer.status_code == 400
        assert "JSON" in answer.json()["error"]["message"]


def test_a_reply_function_that_raises_fails_the_request_and_says_so(
    client: httpx.Client, model_server: ModelServer
) -> None:
    def broken(_conversation: object) -> Reply:
        raise LookupError("no such thing")

    model_server.script("hi", broken)
    answer = ask(client, "hi")
    assert answer.status_code == 400
    assert "LookupError: no such thing" in answer.json()["error"]["message"]


def test_a_server_starts_once_and_stops_twice() -> None:
    server = ModelServer()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
    server.start()
    with pytest.raises(RuntimeError, match="running already"):
        server.start()
    port = server.port
    with pytest.raises(OSError, match="in use"):
        ModelServer(port=port).start()
    server.stop()
    server.stop()
    with ModelServer(port=port) as again:
        assert again.port == port


def test_a_script_needs_a_reply() -> None:
    with pytest.raises(ValueError, match="no replies"):
        Script(())
    with pytest.raises(ValueError, match="either text or a structured value"):
        Reply("x", (call("y"),), structured=1)
