"""The command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

COMMAND = [sys.executable, "-m", "flyteplugins.agents.conformance.models"]
ASK = """
import json, os, sys, urllib.request
body = json.dumps({"model": "m", "input": sys.argv[1]}).encode()
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", body, headers)
try:
    print(json.load(urllib.request.urlopen(request))["output"][0]["content"][0]["text"])
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode())
"""
WAIT = """
import signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda n, _: sys.exit(40 + n))
print("ready", flush=True)
time.sleep(60)
"""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_command_runs_with_every_sdk_pointed_at_the_server() -> None:
    names = (
        "ANTHROPIC_BASE_URL ANTHROPIC_API_KEY GOOGLE_GEMINI_BASE_URL GOOGLE_API_KEY MISTRAL_API_KEY MISTRAL_SERVER_URL"
    )
    show = f"import os; print(*(os.environ[n] for n in {names.split()!r}))"
    done = run("--", sys.executable, "-c", show)
    assert done.returncode == 0, done.stderr
    anthropic, _, gemini, _, _, mistral = done.stdout.split()
    root = anthropic.removesuffix("/anthropic")
    assert root.startswith("http://127.0.0.1:")
    assert (gemini, mistral) == (root + "/gemini", root + "/mistral")


def test_a_key_of_the_users_own_is_not_passed_on() -> None:
    show = "import os; print(os.environ['OPENAI_API_KEY'])"
    environment = {**os.environ, "OPENAI_API_KEY": "a-real-key"}
    done = subprocess.run(
        [*COMMAND, "--", sys.executable, "-c", show],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    assert done.stdout.strip() == "offline-model-server"


def test_the_command_talks_to_a_lenient_server_unless_told_otherwise() -> None:
    lenient = run("--", sys.executable, "-c", ASK, "Sing!")
    assert "Sing!" in lenient.stdout
    strict = run("--strict", "--", sys.executable, "-c", ASK, "Sing!")
    assert strict.returncode == 1
    assert "No script or stock dialogue" in strict.stderr


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_commands_status_is_passed_on(code: str, status: int) -> None:
    assert run("--", sys.executable, "-c", code).returncode == status


def test_a_command_that_cannot_run_is_named() -> None:
    done = run("--", "no-such-command")
    assert done.returncode == 127
    assert "'no-such-command'" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_and_ends_both(number: signal.Signals) -> None:
    with running(*COMMAND, "--", sys.executable, "-c", WAIT) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(30) == 40 + number


def test_without_a_command_it_prints_what_to_set_and_serves_until_stopped() -> None:
    with running(*COMMAND) as process:
        assert process.stdout
        lines: list[str] = []
        while not lines or not lines[-1].startswith("# Stop"):
            lines.append(process.stdout.readline())
        exports = dict(
            line.removeprefix("export ").strip().split("=", 1) for line in lines if line.startswith("export ")
        )
        root = exports["FLYTE_AGENTS_MODEL_SERVER"]
        assert exports["OPENAI_BASE_URL"] == root + "/openai/v1"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(root + "/_health") as answer:
            assert answer.status == 200
        taken = run("--port", root.rpartition(":")[2])
        assert taken.returncode == 1
        assert "Choose another --port" in taken.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
