"""The model's API: where it is, and asking it, with repetitions in place.

Claude Code repeats requests by itself; here that is done for it, inside of the leaf, so that one turn is one leaf however often
it was tried, and only what it has another answer to (a fallback model, a request that is too long) gets back to it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2

from flyteplugins.agents.core import ErrorClass

from ._codec import event_data
from ._errors import IncompleteAnswerError, UpstreamError, status_class

__all__ = ["Upstream"]

logger = logging.getLogger("flyteplugins.agents")

_HOP_BY_HOP = frozenset(
    {"host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "upgrade", "accept-encoding"}
)
_PROXY_HEADERS = frozenset({"proxy-authorization", "proxy-authenticate", "proxy-connection"})

_TELLING = ("request-id", "retry-after", "x-should-retry", "content-type")
"""Response headers that Claude Code reads, besides those of rate limits. None holds a credential."""


@dataclass
class Upstream:
    """The API that a run's turns are asked of.

    Attributes:
        url: Its base address.
        retries: How often a request is repeated that was not answered.
        passed_on: Statuses that are not repeated here, since Claude Code has an answer to them.
        pause: How long to wait before the first repetition, in seconds; twice as long before each further one.
    """

    url: str
    retries: int = 10
    passed_on: frozenset[int] = frozenset()
    pause: float = 0.5
    longest_pause: float = 32.0
    _client: httpx2.AsyncClient | None = field(default=None, repr=False)

    @property
    def client(self) -> httpx2.AsyncClient:
        """The connections of this run, which go through the machine's proxy where it has one."""
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=httpx2.Timeout(600, connect=30), follow_redirects=False)
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def ask(self, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """Ask for a whole answer.

        Args:
            path: Path and query below the base address.
            headers: The headers of Claude Code's request, credentials included.
            body: Its body.

        Returns:
            The text of the answer.

        Raises:
            UpstreamError: There is none.
        """
        async with self._answered(path, headers, body) as response:
            return (await response.aread()).decode()

    async def stream(self, path: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[str, None]:
        """Ask for a streamed answer.

        Args:
            path: Path and query below the base address.
            headers: The headers of Claude Code's request, credentials included.
            body: Its body.

        Yields:
            The text of each event, without the empty line behind it.

        Raises:
            UpstreamError: There is no answer.
            IncompleteAnswerError: It broke off, or the API put an error into it.
        """
        async with self._answered(path, headers, body) as response:
            complete = False
            try:
                async for event in _events(response):
                    kind = event_data(event).get("type")
                    if kind == "error":
                        raise IncompleteAnswerError(event)
                    yield event
                    complete = complete or kind == "message_stop"
            except httpx2.TransportError as error:
                raise IncompleteAnswerError from error
            if not complete:
                raise IncompleteAnswerError

    async def pass_through(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Make a request that is no turn, such as one that counts tokens.

        Returns:
            Status, headers and body of the response.

        Raises:
            UpstreamError: There is no response.
        """
        try:
            response = await self.client.request(method, self.url + path, headers=_forwarded(headers), content=body)
        except httpx2.TransportError as error:
            raise UpstreamError(0, f"{type(error).__name__}: {error}") from error
        return response.status_code, _telling(response), response.content

    @asynccontextmanager
    async def _answered(self, path: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[httpx2.Response]:
        response = await self._open(path, headers, body)
        try:
            yield response
        finally:
            await response.aclose()

    async def _open(self, path: str, headers: Mapping[str, str], body: bytes) -> httpx2.Response:
        for attempt in range(self.retries + 1):
            request = self.client.build_request("POST", self.url + path, headers=_forwarded(headers), content=body)
            try:
                response = await self.client.send(request, stream=True)
                if response.status_code == 200:
                    return response
                text = (await response.aread()).decode("utf-8", "replace")
                await response.aclose()
                problem = UpstreamError(response.status_code, text, _telling(response))
            except httpx2.TransportError as error:
                problem = UpstreamError(0, f"{type(error).__name__}: {error}")
            if attempt == self.retries or not self._is_repeated(problem):
                raise problem
            pause = self._pause(attempt, problem)
            logger.info("%s It is asked again in %.1f s.", problem, pause)
            await asyncio.sleep(pause)
        raise AssertionError("the loop returns or raises")

    def _is_repeated(self, problem: UpstreamError) -> bool:
        if problem.status in self.passed_on:
            return False
        told = problem.headers.get("x-should-retry")
        if told in ("true", "false"):
            return told == "true"
        return status_class(problem.status) is ErrorClass.RETRY_IN_PLACE

    def _pause(self, attempt: int, problem: UpstreamError) -> float:
        try:
            return min(float(problem.headers["retry-after"]), 60.0)
        except (KeyError, ValueError):
            pause = min(self.pause * float(2**attempt), self.longest_pause)
            return pause * random.uniform(0.75, 1.0)


def _forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and name.lower() not in _PROXY_HEADERS
    }
    return {**kept, "accept-encoding": "identity"}  # events are handed on as they arrive


def _telling(response: httpx2.Response) -> dict[str, str]:
    return {
        name: value
        for name, value in response.headers.items()
        if name in _TELLING or name.startswith("anthropic-ratelimit-")
    }


async def _events(response: httpx2.Response) -> AsyncIterator[str]:
    """Cut a stream into events, each as the text it came as."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line:
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
    # what has no empty line behind it is no event
