"""Importing and starting."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from flyteplugins.agents.conformance.models import ModelServer

WITHOUT_SDKS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"openai", "agents", "anthropic", "mistralai", "claude_agent_sdk", "langchain"} or (
            name.startswith("google.genai") or name.startswith("google.adk")
        ):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import http.client, json
from flyteplugins.agents.conformance.models import ModelServer

with ModelServer(strict=True) as server:
    for path, body in (
        ("/openai/v1/responses", {"model": "m", "input": "My name is Ada"}),
        ("/openai/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "My name is Ada"}]}),
        ("/anthropic/v1/messages", {"model": "m", "messages": [{"role": "user", "content": "My name is Ada"}]}),
        ("/gemini/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "My name is Ada"}]}]}),
        ("/mistral/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "My name is Ada"}]}),
        ("/mistral/v1/conversations", {"model": "m", "inputs": "My name is Ada"}),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        headers = {"authorization": "Bearer k", "x-goog-api-key": "k"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        print(path, answer.status, "Nice to meet you, Ada!" in answer.read().decode())
"""


def test_every_wire_answers_without_any_sdk_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SDKS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all(line.endswith("200 True") for line in lines), done.stdout


def test_importing_the_server_loads_no_sdk() -> None:
    code = "import sys, flyteplugins.agents.conformance.models; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    assert not {"openai", "agents", "anthropic", "mistralai", "google.genai"} & set(loaded)


def test_the_start_time_is_reported(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.perf_counter()
    with ModelServer():
        started = time.perf_counter() - begun
    record_property("seconds_to_start", started)
    with capsys.disabled():
        print(f"\nThe model server started in {started:.3f} s.")
    assert started > 0
