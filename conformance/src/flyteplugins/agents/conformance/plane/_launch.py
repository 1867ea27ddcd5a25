"""What to start for an attempt: the command line, the environment and the folders of its worker."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flyteidl2.core import tasks_pb2
from flyteidl2.task import run_pb2

from flyteplugins.agents.conformance.faults import DIRECTORY_VARIABLE, PLAN_VARIABLE, POINTS_VARIABLE, dump_points

from ._layout import Layout
from ._store import Action, Run
from .modes import Modes

# Settings of a Flyte client in the plane's own environment would make a worker talk to someone else.
_FOREIGN = ("FLYTE", "_U_", "_F_", "UCTL_", "_UNION_", "EAGER_API_KEY", "AGENTS_FAULT")

_PLACEHOLDER = re.compile(r"\{\{\s*[.$](\w+)\s*\}\}")


@dataclass(frozen=True)
class Launch:
    """A worker to start.

    Args:
        argv: its command line.
        env: its whole environment.
        cwd: its working folder, empty.
        log: file for its output.
        pid_file: file for its number.
        note: a line for the log before it starts, may be empty.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: Path
    log: Path
    pid_file: Path
    note: str


def render(args: list[str], values: Mapping[str, str]) -> list[str]:
    """Fill `{{.name}}` and `{{$name}}` in; case does not matter, unknown names stay, as with Flyte's own renderer."""
    known = {name.lower(): value for name, value in values.items()}
    return [_PLACEHOLDER.sub(lambda match: known.get(match[1].lower(), match[0]), arg) for arg in args]


class Launcher:
    """Builds launches.

    Args:
        layout: the data folder.
        endpoint: the plane's own URL.
        binaries: folder with the `a0` program.
    """

    def __init__(self, layout: Layout, endpoint: str, binaries: Path) -> None:
        self._layout = layout
        self._endpoint = endpoint
        self._binaries = binaries
        beside = binaries / "python"
        self._python = beside if beside.exists() else Path(sys.executable)

    def scratch(self, action: Action) -> Path:
        """The folder for the working and temporary files of an action's latest process."""
        return self._layout.work / action.run / f"{action.name}-{action.launch}"

    def pid_file(self, action: Action) -> Path:
        """Where an action's latest process wrote its number."""
        return self.scratch(action) / "pid"

    def log(self, action: Action, attempt: int) -> Path:
        """Where an attempt's output goes."""
        return self._layout.attempt(action.run_base, action.name, attempt) / "log.txt"

    def faults(self, run: str) -> Path:
        """Where a run's fault points are counted."""
        return self._layout.faults / run

    def build(
        self, action: Action, template: tasks_pb2.TaskTemplate, run: Run, spec: run_pb2.RunSpec, modes: Modes
    ) -> Launch:
        """The launch of an action's attempt `action.attempt`, process `action.launch`. Makes its folders."""
        output = self._layout.attempt(action.run_base, action.name, action.attempt)
        raw = self._layout.raw_data(spec.raw_data_storage.raw_data_prefix, action.run, action.name, action.attempt)
        scratch = self.scratch(action)
        cwd, temporary = scratch / "code", scratch / "tmp"
        for folder in (output, cwd, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        # A first attempt has no earlier checkpoint, nor has the one that takes its place after a system failure.
        earlier = self._layout.attempt(action.run_base, action.name, action.attempt - 1) / "_flytecheckpoints"
        argv = render(
            list(template.container.args),
            {
                "input": action.input_uri,
                "outputPrefix": str(output),
                "rawOutputDataPrefix": str(raw),
                "checkpointOutputPrefix": str(output / "_flytecheckpoints"),
                "prevCheckpointPrefix": str(earlier) if action.attempt > 1 else '""',
                "runName": action.run,
                "actionName": action.name,
                "runStartTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.created)),
            },
        )
        if "/" not in argv[0]:
            argv[0] = str(self._binaries / argv[0])
        env, note = self._environment(action, template, run, spec, modes, temporary)
        return Launch(argv, env, cwd, self.log(action, action.attempt), self.pid_file(action), note)

    def _environment(
        self,
        action: Action,
        template: tasks_pb2.TaskTemplate,
        run: Run,
        spec: run_pb2.RunSpec,
        modes: Modes,
        temporary: Path,
    ) -> tuple[dict[str, str], str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        asked = {pair.key: pair.value for pair in (*spec.envs.values, *template.container.env)}
        env |= asked
        env |= {
            "PATH": f"{self._binaries}{os.pathsep}{env.get('PATH', '')}",
            "HOME": str(self._layout.home),
            "TMPDIR": str(temporary),
            "ACTION_NAME": action.name,
            "RUN_NAME": action.run,
            "FLYTE_INTERNAL_EXECUTION_PROJECT": run.project,
            "FLYTE_INTERNAL_EXECUTION_DOMAIN": run.domain,
            "FLYTE_ATTEMPT_NUMBER": str(action.attempt - 1),
            "_U_RUN_BASE": action.run_base,
            "_U_ORG_NAME": run.org,
            "_U_EP_OVERRIDE": self._endpoint,
            "_U_INSECURE": "true",
            # Conditions travel over the Actions service only.
            "_U_USE_ACTIONS": "1",
            # The worker writes to folders that it takes to exist, as a bucket's do; fsspec then makes them.
            "FSSPEC_FILE_AUTO_MKDIR": "true",
            "DO_NOT_TRACK": "1",
        }
        if modes.faults is not None or PLAN_VARIABLE in asked:
            env |= {
                PLAN_VARIABLE: asked.get(PLAN_VARIABLE, modes.faults or ""),
                POINTS_VARIABLE: asked.get(POINTS_VARIABLE, dump_points(modes.fault_points)),
                DIRECTORY_VARIABLE: str(self.faults(action.run)),
                "_F_EXEC_WRAPPER": shlex.join([str(self._python), "-m", "flyteplugins.agents.conformance.faults"]),
            }
        missing = [
            secret.env_var or f"{secret.group}_{secret.key}".strip("_").upper()
            for secret in template.security_context.secrets
        ]
        missing = [name for name in missing if name not in env]
        note = (
            f"[plane] secrets {missing} are not in the plane's environment, where they would come from"
            if missing
            else ""
        )
        return env, note
