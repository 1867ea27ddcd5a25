"""Python processes that have imported an agent SDK already.

Importing an SDK takes seconds, which a test that kills forty processes pays forty times. This server imports it once, with a hash
seed of its own, and forks a process for each program. Flyte is not imported before the fork, since it starts a thread that the
child would lack; nor is anything of ours.

It reads one JSON object per line from its standard input (`argv`, `env`, `cwd`, `output`), and answers each with two: the
process's id when it has started, and its exit status when it has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

from flyteplugins.agents.conformance import faults


def serve(modules: list[str]) -> None:
    """Import the modules, then fork a process for each request until the input ends."""
    for module in modules:
        importlib.import_module(module)
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        raise SystemExit(f"importing {modules} started the threads {others}, which a forked process would lack")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


def _become(request: dict[str, Any]) -> NoReturn:
    """Be the program that was asked for, as if it had been started by itself."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.argv = request["argv"]
    status = 1
    try:
        if faults.POINTS_VARIABLE in os.environ or faults.PLAN_VARIABLE in os.environ:
            faults.install(faults.load_points(os.environ.get(faults.POINTS_VARIABLE, "")))
        from flyte.cli.main import main

        main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1:])
