"""Processes that several others fork from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flyteplugins.agents.conformance.local import SharedForkServer
from flyteplugins.agents.conformance.plane._processes import identity
from flyteplugins.agents.conformance.plane.testing import LocalPlane

PROGRAM = """\
import os, pathlib, sys


def main():
    pathlib.Path(sys.argv[1]).write_text(f"{os.getppid()} {hash('a word')}")
    raise SystemExit(int(sys.argv[2]))
"""

USER = """\
import sys, time
from pathlib import Path
from flyteplugins.agents.conformance.local import SharedForkServer

server = SharedForkServer(Path(sys.argv[1]))
server.wait_until_ready()
print("there", flush=True)
time.sleep(600)
"""


def run(server: SharedForkServer, folder: Path, status: int = 0) -> str:
    """Run a program, and return which process it was forked from, and how that one hashes."""
    (folder / "told_by_whom.py").write_text(PROGRAM)
    told = folder / f"told-{status}"
    argv = [str(folder / "told_by_whom.py"), str(told), str(status)]
    process = server.start(
        "told_by_whom:main", argv, env=dict(os.environ), cwd=folder, output=folder / f"output-{status}"
    )
    assert process.wait() == status, (folder / f"output-{status}").read_text()
    return told.read_text()


def ends(pid: int) -> bool:
    """Whether a process ends soon."""
    give_up = time.monotonic() + 30
    while identity(pid):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def test_it_has_many_users_and_ends_with_the_last_one_however_that_ends(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)  # a socket's own name may have 107 bytes
    folder.mkdir()
    address = folder / "shared.socket"
    first = SharedForkServer(address, [], hash_seed=7)
    with SharedForkServer(address, [], hash_seed=8) as second:
        told = run(second, folder, 3)
        assert told == run(first, folder, 4), "both have the one that the first started"
        first.close()
        user = subprocess.Popen([sys.executable, "-c", USER, str(address)], stdout=subprocess.PIPE)
        assert user.stdout is not None
        with user.stdout:
            assert user.stdout.readline() == b"there\n"
        assert run(second, folder, 5) == told
    pid = int(told.split()[0])
    assert identity(pid)
    user.send_signal(signal.SIGKILL)
    user.wait()
    assert ends(pid)
    with SharedForkServer(address, [], hash_seed=8) as third:
        assert run(third, folder) != told, "it is another one, which hashes otherwise"


def test_that_it_was_killed_is_told_to_whoever_asks(tmp_path: Path) -> None:
    with SharedForkServer(tmp_path / "shared.socket", [], hash_seed=1) as server:
        os.kill(int(run(server, tmp_path).split()[0]), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="The fork server ended"):
            run(server, tmp_path)


def test_a_plane_does_not_start_where_nobody_listens(tmp_path: Path) -> None:
    class Gone:
        address = tmp_path / "gone.socket"

    forks: Any = [Gone()]
    with (
        closing(LocalPlane(tmp_path / "plane", forks=forks)) as plane,
        pytest.raises(RuntimeError, match=r"Cannot fork workers: No fork server listens at \S+/gone\.socket"),
    ):
        plane.start()
