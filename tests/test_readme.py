"""What the README shows is what happens; its programs and commands are among those of all pages, in `test_docs`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import flyte.remote

from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.conformance.plane import LocalPlane

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def normal(text: str) -> list[str]:
    """The lines, without the names that a run makes up, and in no order: parallel tools finish in any."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>", text)
    text = re.sub(r"lisbon-[0-9a-f]{6}", "lisbon-<name>", text)
    return sorted(line.rstrip() for line in text.strip().splitlines())


def test_the_tour_prints_what_the_readme_says(home: Path) -> None:
    shown = re.search(r"<!-- tour -->\n```\n(.*?)\n```\n<!-- /tour -->", README, re.DOTALL)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, "examples/tour.py"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert normal(done.stdout) == normal(shown[1])


def test_every_folder_that_the_readme_names_exists() -> None:
    folders = re.findall(r"^\| `([\w/]+)` \|", README, re.MULTILINE)
    assert {"plugins/core", "examples"} <= set(folders)
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_an_agent_of_this_checkout_is_killed_and_goes_on_as_the_readme_says(home: Path, tmp_path: Path) -> None:
    section = README.partition("## Kill it yourself")[2].partition("\n## ")[0]
    block = re.search(r"```sh\n(.*?)\n```", section, re.DOTALL)
    assert block is not None
    up, run, logs = block[1].splitlines()
    assert shlex.split(up)[:3] == ["python", "-m", "flyteplugins.agents.conformance.models"]
    assert " -m flyteplugins.agents.conformance.plane up " in up
    with ModelServer() as server:
        plane = LocalPlane(tmp_path / "plane", env=server.env()).start()
        try:
            for command in (run, logs):
                words = shlex.split(command)
                assert words[:3] == ["flyte", "--config", "./plane/config.yaml"]
                output = plane.flyte(*words[3:], cwd=ROOT)
                if command == run:
                    plane.connect(ROOT)
                    started = flyte.remote.Run.get(name="trip")
                    started.wait(quiet=True)
                    assert started.phase == "succeeded", plane.worker_log("trip")
            assert "(replayed)" in output
            assert "Your trip to Lisbon is planned." in started.outputs()[0]
        finally:
            plane.close()
        assert server.journal.count() == 4
