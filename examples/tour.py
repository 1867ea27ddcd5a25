# The main job without an API key: a conversation over two runs, then an agent that is killed twice and goes on.
#
# Type:  make chat
# See:   each command as you could type it yourself, what it prints, and how many requests the model got.
#
# The model is the offline model server: a real HTTP server on this machine that speaks OpenAI's protocol.
import os
import re
import shlex
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from flyteplugins.agents.conformance.models import ModelServer

EXAMPLES = Path(__file__).parent
ANSWER = re.compile(r"ActionOutputs\(o0=(['\"])(.*)\1\)", re.DOTALL)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def flyte_run(server: ModelServer, *arguments: str) -> bool:
    """Run `flyte run --local ...`, show it and what it says, and tell whether it finished."""
    command = ["flyte", "run", "--local", *arguments]
    print(f"\n$ {shlex.join(command)}", flush=True)
    asked = server.journal.count()
    process = subprocess.run(
        [str(Path(sys.executable).with_name("flyte")), *command[1:]],
        cwd=EXAMPLES.parent,
        env={**os.environ, **server.env(), "NO_COLOR": "1", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = STYLE.sub("", process.stdout)
    for line in said.splitlines():
        if line.startswith(("    ", "[flyte-agents]")):  # what the program printed; the rest is Flyte's
            print(f"    {line.strip()}")
    answer = ANSWER.search(re.sub(r"\s*│\s*", " ", said))
    if answer:
        print(f"    => {' '.join(answer[2].split())}")
    requests = server.journal.count() - asked
    print(f"    [{requests} request{'' if requests == 1 else 's'} to the model]", flush=True)
    return process.returncode == 0


def ask() -> str:
    """Read a line from whoever sits at the terminal; empty where they have had enough."""
    try:
        return input("you> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return ""


def go_on_until_done(server: ModelServer, *arguments: str) -> None:
    """Run it, and the same again each time that it is killed by Ctrl-C."""
    while True:
        try:
            flyte_run(server, *arguments)
            return
        except KeyboardInterrupt:
            print("\n    *** killed ***")


def main() -> int:
    """Show the tour; with a terminal, talk afterwards."""
    with ModelServer(strict=False) as server, tempfile.TemporaryDirectory(prefix="flyte-agents-") as home:
        os.environ["FLYTE_AGENTS_HOME"] = home  # memories of the tour, gone with it
        name = f"lisbon-{uuid.uuid4().hex[:6]}"
        print("1. A conversation over two runs: the second one is another process, and knows what the first was told.")
        talk = ("examples/chat.py", "chat", "--memory_key", "ada", "--message")
        ok = flyte_run(server, *talk, "My name is Ada")
        ok &= flyte_run(server, *talk, "What is my name?")
        print(
            "\n2. An agent that is killed after its second turn, and then in a tool. The same command goes on each time."
        )
        plan = ("--name", name, "examples/crash_resume.py", "plan", "--city", "Lisbon")
        died = [not flyte_run(server, *plan) for _ in range(2)]
        ok &= all(died) and flyte_run(server, *plan)
        print(f"\n{server.journal.count(user='Plan a trip to Lisbon and book it.')} model requests for the trip in all: "
              "each turn was asked once.")  # fmt: skip
        if ok and sys.stdin.isatty():
            print("\n3. Your turn. Each line is a run of its own in the same conversation; an empty line ends it.")
            print("   Ctrl-C kills the run that is on, and the same command goes on where it was.")
            while line := ask():
                go_on_until_done(server, "--name", f"talk-{uuid.uuid4().hex[:6]}", *talk, line)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
