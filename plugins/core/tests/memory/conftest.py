"""A memory on local disk and on a fake S3: the tests of the store run on both."""

from __future__ import annotations

import datetime
import logging
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte.storage
import pytest

from flyteplugins.agents.core import Folder, MemoryStore

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


@dataclass
class FakeS3:
    """An S3 server on this machine. It answers one request at a time, so that a conditional create is atomic as it is in S3.

    Attributes:
        app: The application behind it.
        url: Its endpoint.
        bucket: The bucket that it has.
        uploads: The key and the size in bytes of each object that was uploaded.
        requests: How many requests it had, by method.
        lose_answer_to: A part of a key: the next upload to such a key is carried out, and answered as if the server had failed.
    """

    app: WSGIApplication
    url: str = ""
    bucket: str = "memories"
    uploads: list[tuple[str, int]] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    lose_answer_to: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def environment(self) -> dict[str, str]:
        """What has Flyte take it for S3."""
        return {
            "FLYTE_AWS_ENDPOINT": self.url,
            "FLYTE_AWS_ACCESS_KEY_ID": "test",
            "FLYTE_AWS_SECRET_ACCESS_KEY": "test-secret",
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests[method] = self.requests.get(method, 0) + 1
            if method == "PUT":
                self.uploads.append((path, int(environ.get("CONTENT_LENGTH") or 0)))
            if method == "PUT" and self.lose_answer_to and self.lose_answer_to in path:
                self.lose_answer_to = ""
                b"".join(self.app(environ, _ignored))
                start_response("500 Internal Server Error", [("Content-Length", "0")])
                return []
            return list(self.app(environ, start_response))


def _ignored(*_: Any) -> Callable[[bytes], object]:
    return lambda _: None


@pytest.fixture(scope="session")
def s3_server() -> Iterator[FakeS3]:
    """The server, with one bucket."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    fake = FakeS3(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, fake, threaded=True)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        create = urllib.request.Request(f"{fake.url}/{fake.bucket}", method="PUT")
        urllib.request.urlopen(create).close()
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def s3(s3_server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> FakeS3:
    """The server, which this process and those that it starts take for S3."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    configured = flyte.storage.get_configured_fsspec_kwargs

    def at_once(protocol: str | None = None, anonymous: bool = False) -> dict[str, Any]:
        options = configured(protocol, anonymous)
        options["retry_config"]["backoff"]["init_backoff"] = datetime.timedelta(milliseconds=1)  # Flyte's is 5 s
        return options

    monkeypatch.setattr(flyte.storage, "get_configured_fsspec_kwargs", at_once)
    s3_server.uploads.clear()
    s3_server.requests.clear()
    s3_server.lose_answer_to = ""
    return s3_server


@pytest.fixture
def s3_folder(s3: FakeS3) -> Folder:
    """A folder in the fake S3."""
    return Folder.at(f"s3://{s3.bucket}", uuid.uuid4().hex, "ada")


@pytest.fixture(params=["a local disk", "S3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """Where a memory is."""
    if request.param == "S3":
        return request.getfixturevalue("s3_folder")  # type: ignore[no-any-return]
    return Folder.at(str(tmp_path), "memories", "ada")


FilesBelow = Callable[[Path, str], list[Path]]


@pytest.fixture
def files_below() -> FilesBelow:
    """Finds the files below a folder of this machine whose paths match a pattern."""
    return lambda folder, pattern: sorted(path for path in folder.rglob(pattern) if path.is_file())


@pytest.fixture
def store(folder: Folder) -> MemoryStore:
    """A memory of that place."""
    return MemoryStore("ada", folder)
