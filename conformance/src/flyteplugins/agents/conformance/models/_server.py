"""The server: a thread of its own, a loopback port, and handles on the model, the journal and the faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import uvicorn

from ._app import Application
from ._connections import Connections
from ._dialogues import STOCK, Dialogue
from ._faults import Fault, FaultBook
from ._journal import Journal
from ._match import Match
from ._model import OfflineModel
from ._reply import Reply
from ._scripts import ReplyMaker, Script
from ._wires import ALL_WIRES

DUMMY_KEY = "offline-model-server"


class ModelServer:
    """An offline model server in this process, on a loopback port.

    ```python
    with ModelServer() as server:
        server.script("hello", Reply(calls=(call("get_weather", city="Oslo"),)), Reply("It rains."))
        client = OpenAI(base_url=server.openai_base_url, api_key="any")
        ...
        assert server.journal.per_turn(user="hello") == {1: 1, 2: 1}
    ```

    Args:
        strict: Refuse what a provider would refuse, and prompts that nothing answers. In lenient mode the server reads
            what it can, and makes small talk.
        port: TCP port; 0 picks a free one.
        dialogues: What it can talk about without a script.
    """

    def __init__(self, *, strict: bool = True, port: int = 0, dialogues: Sequence[Dialogue] = STOCK) -> None:
        self.strict = strict
        self.journal = Journal()
        self.faults = FaultBook()
        self.model = OfflineModel(strict=strict, dialogues=dialogues)
        self._connections = Connections()
        wires = tuple(wire(strict=strict) for wire in ALL_WIRES)
        self._application = Application(self.model, wires, self.journal, self.faults, self._connections)
        self._stopping = threading.Lock()
        self._wanted_port = port
        self._port: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    # -- life

    def start(self) -> Self:
        """Bind the port and serve from a thread of its own.

        Raises:
            RuntimeError: When it is running already.
            OSError: When the port is taken.
        """
        if self._thread is not None:
            raise RuntimeError(f"This model server is running already, at {self.url}.")
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self._wanted_port))
            listener.listen(512)
        except OSError:
            listener.close()
            raise
        self._port = listener.getsockname()[1]
        # Logging stays as the process has it, and no protocol but HTTP/1.1 is served.
        config = uvicorn.Config(
            self._application.asgi,
            http=self._connections.protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=60,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, args=(listener,), name="offline-models", daemon=True)
        self._thread.start()
        return self

    def _serve(self, listener: socket.socket) -> None:
        assert self._uvicorn is not None
        loop = asyncio.new_event_loop()
        self._loop = loop
        try:
            loop.run_until_complete(self._uvicorn.serve(sockets=[listener]))
        finally:
            loop.close()

    def stop(self) -> None:
        """Reset every open connection and stop. Stopping a stopped server does nothing."""
        with self._stopping:
            self._stop()

    def _stop(self) -> None:
        if self._thread is None or self._uvicorn is None:
            return
        self._uvicorn.should_exit = True
        self._uvicorn.force_exit = True
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop closed in the meantime, and its connections with it
                self._loop.call_soon_threadsafe(self._connections.reset_all)
        self._thread.join(timeout=10)
        if self._thread.is_alive():
            raise RuntimeError("The model server did not stop within 10 seconds.")
        self._thread = self._uvicorn = self._loop = self._port = None

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.stop()

    # -- addresses

    @property
    def port(self) -> int:
        """The TCP port it listens on.

        Raises:
            RuntimeError: When it is not running.
        """
        if self._port is None:
            raise RuntimeError("This model server is not running; call `start()` or use it in a `with` statement.")
        return self._port

    @property
    def url(self) -> str:
        """The root URL; the control endpoints (`/_journal`, `/_script`, `/_faults`, `/_state`) are below it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_base_url(self) -> str:
        """What `OPENAI_BASE_URL` or `AsyncOpenAI(base_url=)` takes."""
        return self.url + "/openai/v1"

    @property
    def anthropic_base_url(self) -> str:
        """What `ANTHROPIC_BASE_URL` or `AsyncAnthropic(base_url=)` takes."""
        return self.url + "/anthropic"

    @property
    def gemini_base_url(self) -> str:
        """What `GOOGLE_GEMINI_BASE_URL` or `HttpOptions(base_url=)` takes."""
        return self.url + "/gemini"

    @property
    def mistral_server_url(self) -> str:
        """What `Mistral(server_url=)` takes."""
        return self.url + "/mistral"

    def env(self) -> dict[str, str]:
        """Return the environment variables that point every SDK here, with dummy keys."""
        out = {
            "OPENAI_BASE_URL": self.openai_base_url,
            "OPENAI_API_KEY": DUMMY_KEY,
            # The SDK would send its traces to the real provider, with the dummy key.
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "ANTHROPIC_BASE_URL": self.anthropic_base_url,
            "ANTHROPIC_API_KEY": DUMMY_KEY,
            # Claude Code would ask the model for titles of its sessions, and others for its updates.
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "GOOGLE_GEMINI_BASE_URL": self.gemini_base_url,
            "GOOGLE_API_KEY": DUMMY_KEY,
            "MISTRAL_API_KEY": DUMMY_KEY,
            "MISTRAL_SERVER_URL": self.mistral_server_url,
            "MISTRAL_BASE_URL": self.mistral_server_url + "/v1",
            "FLYTE_AGENTS_MODEL_SERVER": self.url,
        }
        # These would send google-genai elsewhere; it warns of the second, so that is set only where someone did.
        out["GOOGLE_GENAI_USE_ENTERPRISE"] = "false"
        if "GOOGLE_GENAI_USE_VERTEXAI" in os.environ:
            out["GOOGLE_GENAI_USE_VERTEXAI"] = "false"
        for name in ("NO_PROXY", "no_proxy"):
            hosts = [h for h in os.environ.get(name, "").split(",") if h]
            out[name] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
        return out

    # -- what tests say

    def script(
        self,
        user: str | None = None,
        /,
        *replies: Reply | ReplyMaker | str,
        match: Match | None = None,
        model: str | None = None,
        system: str | None = None,
        name: str | None = None,
        anywhere: bool = False,
        repeat_last: bool = False,
    ) -> Script:
        """Script the replies to matching requests, one for each turn; see `Script`.

        Args:
            user: Regular expression for the last user text; `None` for any.
            replies: One for each turn; a string stands for a text reply.
            match: A full condition, instead of `user`, `model` and `system`.
            model: The exact model name.
            system: Regular expression for the instructions.
            name: Name in the journal; by default the condition.
            anywhere: Also match an earlier user text, and count turns from it.
            repeat_last: Give the last reply for every further turn.
        """
        if match is not None and (user is not None or model is not None or system is not None):
            raise ValueError("Give `match`, or `user`, `model` and `system`; not both.")
        match = match or Match(user=user, model=model, system=system)
        script = Script(
            tuple(Reply(r) if isinstance(r, str) else r for r in replies),
            match,
            name or str(match),
            anywhere=anywhere,
            repeat_last=repeat_last,
        )
        self.model.add(script)
        return script

    def fault(
        self,
        fault: Fault,
        *,
        match: Match | None = None,
        user: str | None = None,
        model: str | None = None,
        turn: int | None = None,
        streamed: bool | None = None,
    ) -> Fault:
        """Let matching requests meet a fault; see `Fault` and `Match`.

        Args:
            fault: What goes wrong, and how often.
            match: A full condition, instead of the following.
            user: Regular expression for the last user text.
            model: The exact model name.
            turn: The turn asked for, from 1.
            streamed: Whether a stream is asked for.
        """
        fault = fault.on(match or Match(user=user, model=model, turn=turn, streamed=streamed))
        self.faults.add(fault)
        return fault

    def clear(self) -> None:
        """Forget scripts, faults, the journal and all server-side state."""
        self._application.clear()
