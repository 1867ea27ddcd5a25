"""Asking the API: what is repeated in place, what gets back to Claude Code, and what is no answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from flyteplugins.agents.claude._errors import IncompleteAnswerError, UpstreamError
from flyteplugins.agents.claude._upstream import Upstream

START = 'event: message_start\ndata: {"type": "message_start", "message": {}}'
STOP = 'event: message_stop\ndata: {"type": "message_stop"}'


class Api(httpx2.AsyncBaseTransport):
    """An API that says what it is told to."""

    def __init__(self, *responses: httpx2.Response | Exception) -> None:
        self.responses = list(responses)
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    def upstream(self, **given: Any) -> Upstream:
        client = httpx2.AsyncClient(transport=self)
        return Upstream("http://api", pause=0.0, _client=client, **given)


def events(*texts: str) -> httpx2.Response:
    return httpx2.Response(200, content="".join(f"{text}\n\n" for text in texts).encode())


async def read(upstream: Upstream) -> list[str]:
    headers = {"x-api-key": "k", "host": "127.0.0.1", "proxy-authorization": "p", "accept-encoding": "gzip"}
    return [event async for event in upstream.stream("/v1/messages", headers, b"{}")]


async def test_a_request_is_repeated_until_it_is_answered() -> None:
    api = Api(
        httpx2.ConnectError("no"), httpx2.Response(529), httpx2.Response(429), httpx2.Response(500), events(START, STOP)
    )
    assert await read(api.upstream()) == [START, STOP]
    assert len(api.requests) == 5


async def test_it_is_repeated_no_more_often_than_it_may() -> None:
    api = Api(*(httpx2.Response(500, text="no") for _ in range(9)))
    with pytest.raises(UpstreamError, match="answered 500: no"):
        await read(api.upstream(retries=2))
    assert len(api.requests) == 3


@pytest.mark.parametrize(
    ("status", "headers", "passed_on"),
    [(400, {}, ()), (401, {}, ()), (500, {"x-should-retry": "false"}, ()), (529, {}, (529,))],
    ids=["400", "401", "told not to", "passed on"],
)
async def test_what_would_be_refused_again_is_asked_once(
    status: int, headers: dict[str, str], passed_on: tuple[int, ...]
) -> None:
    api = Api(httpx2.Response(status, headers=headers))
    with pytest.raises(UpstreamError) as caught:
        await read(api.upstream(passed_on=frozenset(passed_on)))
    assert caught.value.status == status
    assert len(api.requests) == 1


async def test_credentials_go_to_the_api_and_those_of_a_proxy_do_not() -> None:
    api = Api(events(START, STOP))
    await read(api.upstream())
    [request] = api.requests
    assert str(request.url) == "http://api/v1/messages"
    assert request.headers["x-api-key"] == "k"
    assert request.headers["host"] == "api"
    assert request.headers["accept-encoding"] == "identity"
    assert "proxy-authorization" not in request.headers


async def test_a_redirect_is_not_followed() -> None:
    """The key would go along."""
    api = Api(httpx2.Response(307, headers={"location": "http://elsewhere/"}))
    with pytest.raises(UpstreamError):
        await read(api.upstream())
    assert len(api.requests) == 1


async def test_a_stream_that_just_ends_is_no_answer() -> None:
    with pytest.raises(IncompleteAnswerError):
        await read(Api(events(START)).upstream())


async def test_an_event_without_its_end_is_no_event() -> None:
    with pytest.raises(IncompleteAnswerError):
        await read(Api(httpx2.Response(200, content=f"{START}\n\n{STOP}\n".encode())).upstream())


async def test_an_error_in_the_stream_is_no_answer() -> None:
    problem = 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    with pytest.raises(IncompleteAnswerError) as caught:
        await read(Api(events(START, problem, STOP)).upstream())
    assert caught.value.body == problem


async def test_a_connection_that_breaks_in_mid_stream_is_no_answer() -> None:
    class Broken(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield f"{START}\n\n".encode()
            raise httpx2.ReadError("gone")

    with pytest.raises(IncompleteAnswerError):
        await read(Api(httpx2.Response(200, stream=Broken())).upstream())
