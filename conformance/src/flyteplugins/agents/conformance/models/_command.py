"""The command line: serve, or run another command with every SDK pointed at the server."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from ._server import ModelServer

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status.

    Args:
        arguments: Without the program's name; what follows `--` is a command to run.
    """
    own, command = _split(list(arguments))
    parser = argparse.ArgumentParser(
        prog="python -m flyteplugins.agents.conformance.models",
        description="An offline model server for the OpenAI, Anthropic, Gemini and Mistral SDKs. With a command, runs "
        "it with every SDK pointed at the server and exits with its status; without one, serves until stopped.",
        usage="%(prog)s [--port N] [--strict | --lenient] [-- COMMAND...]",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (a free one by default)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--strict", action="store_true", help="refuse what a provider would, and unknown prompts")
    mode.add_argument("--lenient", action="store_true", help="answer anything (default)")
    options = parser.parse_args(own)
    try:
        server = ModelServer(strict=options.strict, port=options.port).start()
    except OSError as error:
        print(f"Cannot listen on 127.0.0.1:{options.port}: {error.strerror}. Choose another --port.", file=sys.stderr)
        return 1
    try:
        return _run(command, server) if command else _serve(server)
    finally:
        server.stop()


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _serve(server: ModelServer) -> int:
    stop = threading.Event()
    for number in _FORWARDED:
        signal.signal(number, lambda *_: stop.set())
    print(f"# Offline model server at {server.url}. Point every SDK at it with:")
    for name, value in server.env().items():
        print(f"export {name}={shlex.quote(value)}")
    print("# Stop with Ctrl-C.", flush=True)
    stop.wait()
    return 0


def _run(command: list[str], server: ModelServer) -> int:
    held: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def forward(number: int, _frame: FrameType | None) -> None:
        if child is None:
            held.append(number)
        elif not (number == signal.SIGINT and _from_terminal()):
            child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        child = subprocess.Popen(command, env={**os.environ, **server.env()})
        for number in held:
            child.send_signal(number)
        status = child.wait()
    except OSError as error:
        print(f"Cannot run {command[0]!r}: {error.strerror}.", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    # As shells do: 128 and the number of the signal that ended it.
    return status if status >= 0 else 128 - status


def _from_terminal() -> bool:
    """Whether a SIGINT was a terminal's Ctrl-C, which the command, in the same process group, has got as well."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
