"""The server: who may call it, what it hands out, how it starts and ends."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from pathlib import Path

import flyte.config
import httpx
import pytest

from flyteplugins.agents.conformance.plane._cli import main
from flyteplugins.agents.conformance.plane._processes import identity
from flyteplugins.agents.conformance.plane.testing import LocalPlane


def up(tmp_path: Path, *options: str) -> int:
    """Try to start a plane in this process, which must fail."""
    return main(["up", "--data", str(tmp_path / "data"), "--port", "0", *options])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.2"])
def test_it_does_not_listen_for_other_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str) -> None:
    assert up(tmp_path, "--host", host) == 2
    assert f"does not listen on '{host}'" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert up(tmp_path, "--port", str(port)) == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--bin", "/"), "There is no `a0` in /"),
        (("--slots", "0"), "0 slots run nothing"),
        (("--drop", "Enqueue"), "write 'Service/Method'"),
        (("--faults", "a b"), "'a b' cannot name a fault point"),
        (("--snapshot-delay", "-1"), "seconds, 0 or more"),
    ],
)
def test_options_that_make_no_sense_are_errors_that_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], complaint: str
) -> None:
    assert up(tmp_path, *options) == 2
    assert complaint in capsys.readouterr().err


def test_it_refuses_calls_that_name_another_host(plane: LocalPlane) -> None:
    answer = httpx.get(f"{plane.endpoint}/modes", headers={"host": "attacker.example:80"})
    assert (answer.status_code, "for this machine only" in answer.text) == (403, True)
    for name in ("localhost", "127.0.0.1:1", "[::1]:1"):
        assert httpx.get(f"{plane.endpoint}/modes", headers={"host": name}).status_code == 200


@pytest.mark.parametrize("path", ["../outside", "..%2foutside", "uploads/../../outside", "link", "%2fetc/passwd"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_it_neither_reads_nor_writes_outside_the_data_folder(plane: LocalPlane, method: str, path: str) -> None:
    outside = plane.data.parent / "outside"
    outside.write_text("secret")
    link = plane.data / "link"
    if not link.is_symlink():
        link.symlink_to(outside)
    connection = http.client.HTTPConnection("127.0.0.1", int(plane.endpoint.rpartition(":")[2]))
    connection.request(method, f"/blob/{path}", body=b"overwritten")  # not through a client that tidies paths
    answer = connection.getresponse()
    assert answer.status in (403, 404)
    assert b"secret" not in answer.read()
    assert outside.read_text() == "secret"
    connection.close()


def test_it_takes_uploads_and_hands_files_out(plane: LocalPlane) -> None:
    url = f"{plane.endpoint}/blob/uploads/p/d/x/file.txt"
    assert httpx.get(url).status_code == 404
    assert httpx.put(url, content=b"content").status_code == 200
    assert httpx.get(url).content == b"content"
    assert httpx.put(f"{plane.endpoint}/blob/plane.db", content=b"").status_code == 403


def test_a_service_that_it_does_not_have_is_unimplemented(plane: LocalPlane) -> None:
    answer = httpx.post(f"{plane.endpoint}/flyteidl2.secret.SecretService/ListSecrets")
    assert (answer.status_code, answer.json()["code"]) == (404, "unimplemented")


def test_modes_that_make_no_sense_are_refused_and_change_nothing(plane: LocalPlane) -> None:
    before = httpx.get(f"{plane.endpoint}/modes").json()
    answer = httpx.put(f"{plane.endpoint}/modes", content=b'{"snapshot_delay": -1}')
    assert (answer.status_code, "seconds, 0 or more" in answer.text) == (400, True)
    assert httpx.get(f"{plane.endpoint}/modes").json() == before


def test_the_config_file_that_it_writes_points_flyte_at_it(plane: LocalPlane) -> None:
    config = flyte.config.auto(plane.config)
    assert (config.platform.endpoint, config.platform.insecure) == (plane.endpoint, True)
    assert (config.task.org, config.task.project, config.task.domain) == ("local", "default", "development")


def test_it_ends_when_told_to_even_while_someone_listens(plane_factory: Callable[..., LocalPlane]) -> None:
    plane = plane_factory()
    pid, port = plane.pid, int(plane.endpoint.rpartition(":")[2])
    listening = socket.create_connection(("127.0.0.1", port))
    listening.sendall(b"POST /flyteidl2.actions.ActionsService/WatchForUpdates HTTP/1.1\r\nhost: 127.0.0.1\r\n")
    plane.stop()
    assert not identity(pid)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    listening.close()
