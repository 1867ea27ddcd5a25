"""Where turns cannot be recorded: the session is kept after each step, and a retry goes on from it.

With another cloud's API the address cannot be moved, so nobody sees Claude Code's requests. What it writes into its session is
then kept in the run's records as it happens, and the next attempt resumes that session. It costs a request more than a replay
would, the model is told to go on, and what was not written yet is lost; the run's tools are recorded one by one all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from claude_agent_sdk import ResultMessage, SessionKey, SessionStoreEntry

from flyteplugins.agents.core import JSON, AgentError, AgentRun, TurnFinished

from ._codec import facts_of_body
from ._session import MemorySession, Message, messages_of

__all__ = ["GO_ON", "EagerSession"]

GO_ON = "Your work was interrupted. Go on from where you were, and answer the request above."
"""What the model is told on a retry."""

_STRUCTURED = "StructuredOutput"


class EagerSession(MemorySession):
    """A session that is kept after each step.

    Args:
        run: The agent run, in whose records it is kept.
        history: As for `MemorySession`.
        subagents: As for `MemorySession`.
        cwd: As for `MemorySession`.
    """

    def __init__(
        self,
        run: AgentRun,
        history: Sequence[JSON] = (),
        subagents: Mapping[str, bytes] | None = None,
        cwd: str | None = None,
    ) -> None:
        super().__init__(history, subagents, cwd)
        self._run = run
        self._steps = 0
        self._left: list[tuple[SessionKey, list[SessionStoreEntry]]] = []

    @property
    def _place(self) -> str:
        return f"{self._run.recorder.path}/session"

    async def read(self) -> None:
        """Read what an earlier attempt left."""
        assert self._run.scope is not None
        folder = self._run.scope.folder
        for name in sorted(await folder.names(self._place)):
            step = json.loads(await folder.read(name))
            self._left.append((cast(SessionKey, step["key"]), step["entries"]))
            self.session_id = step["key"]["session_id"]
            self._steps += 1

    @property
    def is_interrupted(self) -> bool:
        """Whether an earlier attempt got as far as an answer."""
        return any(entry.get("type") == "assistant" for key, entries in self._left for entry in entries)

    @property
    def is_continued(self) -> bool:
        """Whether there is anything to go on from."""
        return self.is_interrupted or super().is_continued

    async def fill(self) -> None:
        """Write the session that the run starts from, and what an earlier attempt added."""
        await super().fill()
        if self.is_interrupted:
            for key, entries in self._left:
                await super().append(key, entries)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add and keep what Claude Code wrote."""
        assert self._run.scope is not None
        step = json.dumps({"key": key, "entries": entries}, ensure_ascii=False).encode()
        if not await self._run.scope.folder.create(f"{self._place}/{self._steps:08d}.json", step):
            raise AgentError("Another worker is writing this run's session, so this one stops.")
        self._steps += 1
        await super().append(key, entries)

    def finished(self) -> ResultMessage | None:
        """The result of an earlier attempt that got to its end; `None` if none did."""
        messages = self._left_messages()
        last = messages[-1] if messages else {}
        blocks = last.get("content") or []
        if last.get("role") != "assistant" or last.get("stop_reason") != "end_turn":
            return None
        calls = [block for message in messages for block in message["content"] if isinstance(block, dict)]
        outputs = [block["input"] for block in calls if block.get("name") == _STRUCTURED]
        return ResultMessage(
            subtype="success",
            duration_ms=0,
            duration_api_ms=0,
            is_error=False,
            num_turns=sum(message["role"] == "assistant" for message in messages),
            session_id=self.session_id,
            stop_reason="end_turn",
            total_cost_usd=0.0,
            result="".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text"),
            structured_output=outputs[-1] if outputs else None,
        )

    def _left_messages(self) -> list[Message]:
        main = [entry for key, entries in self._left if not key.get("subpath") for entry in entries]
        return messages_of(cast("list[Mapping[str, Any]]", main))

    async def tell(self, *, prefix: str) -> None:
        """Tell of the turns, which nobody saw when they were made.

        Args:
            prefix: What Claude Code puts before the names of the run's tools.
        """
        before = {message.get("id") for message in self._left_messages()}
        found = self._left_messages() if not self._added else cast("list[Message]", self.new_messages())
        for message in found:
            if message["role"] != "assistant":
                continue
            facts = facts_of_body(json.dumps(message), prefix)
            await self._run.emit(
                TurnFinished(
                    run=self._run.id,
                    agent=self._run.name,
                    model=str(message.get("model", "")),
                    text=facts.text,
                    tool_calls=facts.tool_calls,
                    usage=facts.usage,
                    replayed=message.get("id") in before,
                )
            )
