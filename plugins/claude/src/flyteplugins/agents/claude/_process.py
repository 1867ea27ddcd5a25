"""The surroundings of one Claude Code process: its own folder, its way to the API, and its end when ours ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LONGEST_CALL", "Surroundings", "runs_in_background", "fixed_upstream", "surroundings", "upstream_url"]

LONGEST_CALL = 2_147_483_647
"""How long Claude Code waits for a call of the run's own tools, in milliseconds: as long as it can, which is 24 days. A task has
a timeout of its own, and a person who is asked may take their time."""

DEFAULT_URL = "https://api.anthropic.com"

_CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")

_ELSEWHERE = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_GATEWAY",
)

_NO_BACKGROUND = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"

_QUIET = {
    # else it asks the model for titles of sessions, and others for updates and settings
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # a sub-agent in the background reports whenever it is ready, in another place on each attempt
    _NO_BACKGROUND: "1",
    # else Claude Code's own system prompt names a folder for notes, which is another one on each attempt and gone after it
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
}

_LAUNCHER = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != {parent}:  # it died before that
    sys.exit(1)
with open({pid!r}, "w") as file:
    file.write(str(os.getpid()))
os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Surroundings:
    """Where a Claude Code process lives.

    Attributes:
        env: Environment variables for `ClaudeAgentOptions.env`.
        cli_path: What is started for it; `None` for the SDK's choice.
    """

    env: dict[str, str]
    cli_path: str | None
    _pid_file: Path

    def end(self) -> None:
        """End the process at once, where it would go on for a while and ask the model more."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(self._pid_file.read_text()), signal.SIGTERM)


def upstream_url(env: Mapping[str, str]) -> str:
    """The address of the API.

    Args:
        env: `ClaudeAgentOptions.env`, which goes before the process's own environment.
    """
    return (env.get("ANTHROPIC_BASE_URL") or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_URL).rstrip("/")


def fixed_upstream(env: Mapping[str, str]) -> str | None:
    """What has Claude Code talk to another cloud's API, whose address cannot be moved; `None` if nothing has.

    Args:
        env: As for `upstream_url`.
    """
    return next((name for name in _ELSEWHERE if _is_on(env.get(name) or os.environ.get(name, ""))), None)


def runs_in_background(env: Mapping[str, str]) -> bool:
    """Whether sub-agents may run in the background: somebody said so, by turning off what turns it off here.

    Args:
        env: As for `upstream_url`.
    """
    told = env.get(_NO_BACKGROUND, os.environ.get(_NO_BACKGROUND))
    return told is not None and not _is_on(told)


def _is_on(value: str) -> bool:
    return value.lower() not in ("", "0", "false", "no", "off")


@contextmanager
def surroundings(
    env: Mapping[str, str],
    *,
    proxy_url: str | None,
    program: str | Path | None,
    own_configuration: bool,
    own_caches: bool,
    bypasses_permissions: bool,
) -> Iterator[Surroundings]:
    """Prepare what one process needs, and remove it afterwards.

    Args:
        env: The caller's `ClaudeAgentOptions.env`, which wins over the defaults here.
        proxy_url: Where its requests go; `None` for where they go anyway.
        program: The caller's `cli_path`.
        own_configuration: Whether it gets a folder of its own for sessions and settings, where credentials are in the
            environment. Else it has the user's.
        own_caches: Whether it gets a folder of its own for caches.
        bypasses_permissions: Whether it is started with all tools allowed, which it refuses to root outside of a sandbox.
    """
    folder = Path(tempfile.mkdtemp(prefix="flyte-agents-claude-"))
    try:
        made = {name: value for name, value in _QUIET.items() if name not in os.environ}
        if any(env.get(name) or os.environ.get(name) for name in _CREDENTIALS) and own_configuration:
            made["CLAUDE_CONFIG_DIR"] = str(folder / "config")
        if own_caches:
            made["XDG_CACHE_HOME"] = str(folder / "cache")
        if bypasses_permissions and hasattr(os, "geteuid") and os.geteuid() == 0:
            made["IS_SANDBOX"] = "1"  # a task's container runs as root
        made |= env
        # each MCP server is one of this process's, and how long its calls may take is said for each
        made["CLAUDE_CODE_SDK_MCP_TOOL_IDLE_TIMEOUT"] = str(LONGEST_CALL)
        if proxy_url is not None:
            made["ANTHROPIC_BASE_URL"] = proxy_url
            for name in ("NO_PROXY", "no_proxy"):
                given = made.get(name, os.environ.get(name, ""))
                made[name] = ",".join(part for part in (given, "127.0.0.1") if part)
        yield Surroundings(made, _launcher(folder, program), folder / "pid")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launcher(folder: Path, program: str | Path | None) -> str | None:
    """A script that starts the program so that the kernel ends it with this process: nothing else does after `kill -9`."""
    if sys.platform != "linux":
        return str(program) if program is not None else None
    found = str(program) if program is not None else _find_program()
    if found is None or shutil.which(found) is None:
        return found  # whoever starts it says that it is not there
    program = os.path.abspath(shutil.which(found) or found)
    launcher = folder / "launch.py"
    launcher.write_text(_LAUNCHER.format(parent=os.getpid(), program=program, pid=str(folder / "pid")))
    script = folder / "claude"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(launcher))} "$@"\n')
    script.chmod(0o700)
    return str(script)


def _find_program() -> str | None:
    import claude_agent_sdk

    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    return str(bundled) if bundled.is_file() else shutil.which("claude")
