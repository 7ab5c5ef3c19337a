"""`imondrian serve`: where it listens, whom it asks for a token, and what it says when it cannot start."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from imondrian.errors import InvalidInputError
from imondrian.service.running import _listening, read_token
from imondrian.service.safety import is_loopback
from tests.service.serving import Service, free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_is_known(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", "", "127.0.0.1.example.org"])  # noqa: S104
def test_all_else_is_not_loopback(host):
    assert not is_loopback(host)


def test_the_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("IMONDRIAN_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("IMONDRIAN_TOKEN", "of the environment")
    assert read_token(None) == "of the environment"
    (tmp_path / "token").write_text("  of a file, and longer\n")
    assert read_token(tmp_path / "token") == "of a file, and longer"
    for wrong in ("", "short"):
        (tmp_path / "token").write_text(wrong)
        with pytest.raises(InvalidInputError, match="at least 16"):
            read_token(tmp_path / "token")
    with pytest.raises(InvalidInputError, match="no-such"):
        read_token(tmp_path / "no-such")
    (tmp_path / "token").write_bytes(b"\xff" * 20)
    with pytest.raises(InvalidInputError, match="token"):
        read_token(tmp_path / "token")


def test_answers_do_not_wait_for_those_who_read_them():
    """An answer is two pieces; without this the second waits for the first to be acknowledged, 40 ms or so."""
    with _listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def told(*options, environment=None):
    """Start a service that cannot start, and give what it says."""
    command = [sys.executable, "-m", "imondrian", "serve", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | (environment or {}), check=False
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_another_address_without_a_token_is_refused(tmp_path):
    said = told("--data", str(tmp_path), "--host", "0.0.0.0", environment={"IMONDRIAN_TOKEN": ""})  # noqa: S104
    assert "0.0.0.0" in said  # noqa: S104
    assert "--token-file" in said
    assert not list(tmp_path.iterdir())


def test_a_token_is_never_an_option(tmp_path):
    assert "No such option" in told("--data", str(tmp_path), "--token", "secret-secret-secret")


def test_a_folder_in_use_or_unusable_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in told("--data", str(tmp_path / "file"), "--port", str(free_port()))
    with Service(tmp_path / "data"):
        said = told("--data", str(tmp_path / "data"), "--port", str(free_port()))
    assert "locked" in said
    assert len(said.strip().splitlines()) == 1


def test_a_port_in_use_is_told_in_one_line(tmp_path):
    with Service(tmp_path / "one") as service:
        said = told("--data", str(tmp_path / "two"), "--port", str(service.port))
    assert str(service.port) in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_in_order(tmp_path, how):
    with Service(tmp_path) as service:
        assert service.ask("GET", "/health")[0] == 200
        service.process.send_signal(how)
        said, _ = service.process.communicate(timeout=60)
    assert service.address in said
    assert "Traceback" not in said
    assert service.process.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["imondrian.db"]
