"""Events go to a URL in order and in batches, and a server that is slow, down or wrong costs the agent nothing."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from flyteplugins.agents.core import AgentRun, EventPost, JsonCodec, TextDelta, ToolCallStarted, TurnFacts, post_events

if TYPE_CHECKING:
    from .conftest import Attempts, Model, StartAgent


class App:
    """A server that keeps what it is sent, and answers what it is told to."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.refused = 0
        self.open = threading.Event()
        self.open.set()
        app = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert app.open.wait(30)
                status = app.answers.pop(0) if app.answers else 200
                if status == 200:
                    app.bodies.append(body)
                    app.headers.append(dict(self.headers))
                else:
                    app.refused += 1
                self.send_response(status)
                self.send_header("content-length", "0")
                self.send_header("retry-after", "0.01")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/events"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for body in self.bodies for event in body["events"]]

    @property
    def texts(self) -> list[str]:
        return [event["text"] for event in self.events]


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    made.open.set()
    made.server.shutdown()
    made.server.server_close()


async def turn(run: AgentRun, model: Model) -> None:
    await run.turn(
        {"question": "hello"},
        lambda: model.answer("hello"),
        codec=JsonCodec(),
        facts=lambda value: TurnFacts(text=str(value)),
        model="m",
    )


def told(sink: EventPost, *texts: str) -> None:
    for text in texts:
        sink(TextDelta(text=text))


async def test_events_arrive_in_order_and_in_batches(app: App) -> None:
    sink = post_events(app.url, batch=10, every=30)
    told(sink, *(str(number) for number in range(35)))
    await sink.drain()
    assert app.texts == [str(number) for number in range(35)]
    assert [len(body["events"]) for body in app.bodies] == [10, 10, 10, 5]
    assert [event["sequence"] for event in app.events] == list(range(1, 36))
    assert {body["source"] for body in app.bodies} == {sink.source}
    assert (sink.posted, sink.dropped) == (35, 0)


async def test_a_sink_that_was_drained_goes_on_with_the_next_event(app: App) -> None:
    sink = post_events(app.url, every=0)
    for text in ("one", "two"):
        told(sink, text)
        await sink.drain()
    assert app.texts == ["one", "two"]


async def test_text_that_is_no_unicode_and_numbers_that_are_none_arrive_as_json(app: App) -> None:
    sink = post_events(app.url)
    sink(ToolCallStarted(call="1", name="look", arguments={"half": "\ud83d", "much": float("inf")}))
    await sink.drain()
    assert [event["name"] for event in app.events] == ["look"]


async def test_an_answer_of_500_is_tried_again_and_the_order_stays(app: App) -> None:
    app.answers = [500, 503, 429]
    sink = post_events(app.url, batch=2, every=30)
    told(sink, "a", "b", "c", "d")
    await sink.drain()
    assert app.texts == ["a", "b", "c", "d"]
    assert (app.refused, sink.dropped) == (3, 0)


async def test_what_the_app_does_not_want_is_not_offered_again(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.answers = [404]
    sink = post_events(app.url, batch=1)
    told(sink, "a", "b")
    await sink.drain()
    assert app.texts == ["b"]
    assert (app.refused, sink.posted, sink.dropped) == (1, 1, 1)
    assert "did not take 1 events (status 404)" in caplog.text
    assert app.bodies[0]["dropped"] == 1


async def test_an_app_that_never_gets_well_loses_events_and_the_end_waits_no_longer_than_it_has_patience(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.open.clear()
    sink = post_events(app.url, batch=2, queue=3, every=0, patience=0.2)
    told(sink, *(str(number) for number in range(20)))  # none of these calls waits: nobody answers
    assert sink.dropped > 10
    await sink.drain()
    assert "does not take events as fast as they come: 3 wait" in caplog.text
    assert "events were not sent to" in caplog.text
    app.open.set()


async def test_an_app_that_is_down_fails_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sink = post_events(f"http://127.0.0.1:{port}/", tries=2)
    told(sink, "a")
    await sink.drain()
    assert (sink.posted, sink.dropped) == (0, 1)
    assert "did not take 1 events (ConnectError)" in caplog.text


async def test_a_request_that_cannot_be_made_is_no_reason_to_send_none_any_more(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = post_events(app.url)
    with monkeypatch.context() as broken:
        broken.setattr(type(sink), "_post", lambda *_: 1 / 0)
        told(sink, "a")
        await sink.drain()
    assert "1 events were not sent" in caplog.text
    told(sink, "b")
    await sink.drain()
    assert (sink.posted, sink.dropped) == (1, 1)


async def test_headers_are_sent_and_no_secret_is_logged(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app.answers = [404]
    secret = "sesame-7261"
    sink = post_events(f"{app.url}?k=1", headers={"Authorization": f"Bearer {secret}"}, batch=1)
    told(sink, "a", "b")
    await sink.drain()
    assert app.headers[0]["authorization" if "authorization" in app.headers[0] else "Authorization"].endswith(secret)
    assert secret not in caplog.text
    assert secret not in repr(sink)
    assert "k=1" not in repr(sink)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "app.example/events"}, "url is no address"),
        ({"url": "file:///tmp/events"}, "url is no address"),
        ({"url": "http://app.example:99999/events"}, "url is no address"),
        ({"headers": {"Authorization": "sésame €"}}, r"headers \['Authorization'\] \(UnicodeEncodeError\)"),
        ({"batch": 0}, "batch is 0"),
        ({"queue": 0}, "queue is 0"),
        ({"tries": 0}, "tries is 0"),
        ({"every": -1}, "every is -1"),
        ({"timeout": 0}, "timeout is 0"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    make: Callable[..., EventPost] = post_events
    with pytest.raises(ValueError, match=said):
        make(**({"url": "http://127.0.0.1:1/"} | options))


async def test_a_run_is_told_to_the_app_to_its_end_and_a_replay_is_marked(
    app: App, attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    async def body() -> None:
        async with start_agent(on_event=post_events(app.url, every=30)) as run:
            await turn(run, model)
            if not attempt.died:
                raise killed
            await run.finish("done")

    await attempt(body)
    first = list(app.events)
    assert [event["type"] for event in first] == ["run started", "turn finished", "run finished"]
    await attempt(body)
    second = app.events[len(first) :]
    assert [(event["type"], event["replayed"]) for event in second] == [
        ("run started", False), ("turn finished", True), ("run finished", False),
    ]  # fmt: skip


async def test_a_run_whose_app_is_down_has_its_answer(attempt: Attempts, start_agent: StartAgent, model: Model) -> None:
    sink = post_events("http://127.0.0.1:9/", tries=1)

    async def body() -> str:
        async with start_agent(on_event=sink) as run:
            await turn(run, model)
            await run.finish("done")
            return "answered"

    assert await attempt(body) == "answered"
    assert (sink.posted, sink.dropped) == (0, 3)
