"""`imondrian serve`: addresses, tokens, signals, file descriptors, file modes, and errors at the start."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import StorageError
from imondrian.service.http import server
from imondrian.service.http.guard import is_loopback
from imondrian.service.http.server import _listen, fit_descriptor_limit, read_token
from imondrian.service.limits import ConnectionLimits, Limits
from tests.service.keyed import HOSTS
from tests.service.serving import Service, free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_addresses_are_recognized(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", "", "127.0.0.1.example.org"])  # noqa: S104
def test_other_addresses_are_not_loopback(host):
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
    (tmp_path / "token").write_text("ä" * 20, encoding="utf-8")
    with pytest.raises(InvalidInputError, match="but has 20, some of them not ASCII"):
        read_token(tmp_path / "token")
    with pytest.raises(InvalidInputError, match="no-such"):
        read_token(tmp_path / "no-such")
    (tmp_path / "token").write_bytes(b"\xff" * 20)
    with pytest.raises(InvalidInputError, match="token"):
        read_token(tmp_path / "token")


def test_accepted_connections_have_tcp_nodelay():
    """A response is two pieces; without TCP_NODELAY the second waits about 40 ms for an acknowledgement."""
    with _listen("127.0.0.1", 0, 16) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def error_output(*options, environment=None):
    """Start a service that must fail to start, and return its error output."""
    command = [sys.executable, "-m", "imondrian", "serve", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | (environment or {}), check=False
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_another_address_without_a_token_is_refused(tmp_path):
    output = error_output("--data", str(tmp_path), "--host", "0.0.0.0", environment={"IMONDRIAN_TOKEN": ""})  # noqa: S104
    assert "0.0.0.0" in output  # noqa: S104
    assert "--token-file" in output
    assert not list(tmp_path.iterdir())


def test_the_token_cannot_be_given_on_the_command_line(tmp_path):
    assert "No such option" in error_output("--data", str(tmp_path), "--token", "secret-secret-secret")


def test_an_unusable_folder_or_one_in_use_gives_a_one_line_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in error_output("--data", str(tmp_path / "file"), "--port", str(free_port()))
    with Service(tmp_path / "data"):
        output = error_output("--data", str(tmp_path / "data"), "--port", str(free_port()))
    assert "in use by another service (process" in output
    assert len(output.strip().splitlines()) == 1


def test_a_port_in_use_gives_a_one_line_error(tmp_path):
    with Service(tmp_path / "one") as service:
        output = error_output("--data", str(tmp_path / "two"), "--port", str(service.port))
    assert str(service.port) in output
    assert len(output.strip().splitlines()) == 1


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_the_service_prints_its_address_and_stops_cleanly(tmp_path, signal_number):
    with Service(tmp_path) as service:
        assert service.request("GET", "/health")[0] == 200
        service.process.send_signal(signal_number)
        output, _ = service.process.communicate(timeout=60)
    assert service.address in output
    assert "Traceback" not in output
    assert service.process.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["imondrian.db"]


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_right_after_the_start_stops_the_service_cleanly(tmp_path, signal_number):
    for i, delay in enumerate((0.0, 0.05, 0.2)):
        service = Service(tmp_path / str(i))
        process = subprocess.Popen(service.command(), stderr=subprocess.PIPE, text=True)
        try:
            output = process.stderr.readline()
            time.sleep(delay)
            process.send_signal(signal_number)
            output += process.communicate(timeout=30)[1]
        finally:
            process.kill()
        assert process.returncode == 0, output
        assert len(output.splitlines()) == 1, output
        assert [path.name for path in (tmp_path / str(i)).iterdir()] == ["imondrian.db"]


@pytest.mark.parametrize(
    "sent", [b"GET / HTT", b"POST /detectors/a/points HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n12"]
)
def test_an_incomplete_request_does_not_prevent_a_clean_stop(tmp_path, sent):
    with Service(tmp_path) as service, service.connect() as connection:
        assert service.request("PUT", "/detectors/a", {"features": ["x"]})[0] == 201
        connection.sendall(sent)
        assert service.request("GET", "/health")[0] == 200
        service.process.terminate()
        output, _ = service.process.communicate(timeout=60)
    assert service.process.returncode == 0
    assert len(output.splitlines()) == 1, output


# -- file descriptors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "n_connections", "n_keyed"),
    [
        (100_000, 100_000, 100_000, 1000, 1000),
        (1024, 100_000, 5576, 1000, 1000),
        (1024, resource.RLIM_INFINITY, 5576, 1000, 1000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1000, 1000),
        (1024, 4096, 4096, 1000, 630),
        (4096, 4096, 4096, 1000, 630),
        (256, 1024, 1024, 224, 56),
        (608, 608, 608, 16, 4),
    ],
)
def test_the_descriptor_limit_is_raised_or_fewer_connections_and_detectors_are_allowed(
    monkeypatch, soft, hard, raised, n_connections, n_keyed
):
    limits = [soft, hard]
    monkeypatch.setattr(server.resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(server.resource, "setrlimit", lambda _, given: limits.__setitem__(slice(None), given))
    connections, detectors = fit_descriptor_limit(ConnectionLimits(), Limits())
    assert (connections.connections, detectors.keyed_detectors) == (n_connections, n_keyed)
    assert limits == [raised, hard]


def test_too_few_descriptors_are_an_error(monkeypatch):
    monkeypatch.setattr(server.resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(server.resource, "setrlimit", lambda *_: None)
    with pytest.raises(InvalidInputError, match=r"at least 608 file descriptors, .* is 256"):
        fit_descriptor_limit(ConnectionLimits(), Limits())


class Limited(Service):
    """A service with few file descriptors."""

    def command(self):
        return ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", *super().command()]


def test_the_service_responds_despite_more_connections_and_detectors_than_descriptors(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this process may not open so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    settings = {**HOSTS, "max_bytes": 2**20}
    with Limited(tmp_path) as service, contextlib.ExitStack() as stack:
        statuses = [service.request("PUT", f"/detectors/k{i}", settings)[0] for i in range(56)]
        assert statuses == [201] * 56
        status, _, content = service.request("PUT", "/detectors/another", settings)
        assert (status, b"At most 56 detectors with a key can be open" in content) == (409, True), content
        for _ in range(1100):
            stack.enter_context(service.connect())
        for _ in range(3):
            assert service.request("GET", "/health")[0] == 200
        assert service.request("GET", "/backup")[0] == 200
        assert service.request("PUT", "/detectors/single", {"features": ["x"]})[0] == 201
    first, *_, last = service.output.splitlines()
    assert "at most 224 connections instead of 1000, and 56 detectors with a key instead of 1000" in first
    assert "serving" in last


def test_a_lower_limit_on_detectors_with_a_key_alone_is_reported():
    few = Limits()._replace(keyed_detectors=630)
    assert list(server._warnings(None, None, ConnectionLimits(), Limits())) == []
    (warning,) = server._warnings(None, None, ConnectionLimits(), few)
    assert warning.startswith("at most 1000 connections instead of 1000, and 630 detectors with a key instead of 1000")


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("open_umask")
def test_other_users_cannot_read_the_data(tmp_path):
    folder = tmp_path / "deep" / "data"
    registry = Registry(folder)
    registry.create("a", {"features": ["x"]})
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == {"imondrian.db": 0o600, "imondrian.db-wal": 0o600}
    registry.close()
    (folder / "imondrian.db").chmod(0o644)
    registry = Registry(folder)
    assert [handle.record.name for handle in registry.all()] == ["a"]
    assert mode(folder / "imondrian.db") == 0o600
    registry.close()


def test_all_files_of_an_earlier_version_become_private_at_the_start(tmp_path):
    registry = Registry(tmp_path / "live")
    registry.create("a", {"features": ["x"]})
    folder = shutil.copytree(tmp_path / "live", tmp_path / "killed")
    registry.close()
    names = {f"imondrian.db{suffix}" for suffix in ("", "-wal", "-shm", ".damaged", ".damaged-wal")}
    for name in (*names, "notes.txt"):
        (folder / name).touch()
        (folder / name).chmod(0o644)
    registry = Registry(folder)
    assert [handle.record.name for handle in registry.all()] == ["a"]
    modes = {path.name: mode(path) for path in folder.iterdir()}
    assert modes.pop("notes.txt") == 0o644  # not a file of the service
    assert modes.keys() >= {"imondrian.db", "imondrian.db-wal", "imondrian.db.damaged"}
    assert set(modes.values()) == {0o600}
    registry.close()


@pytest.mark.usefixtures("open_umask")
def test_other_users_cannot_read_the_damaged_file(tmp_path):
    registry = Registry(tmp_path)
    for i in range(50):
        registry.create(f"a{i}", {"features": ["x"]})
    registry.close()
    path = tmp_path / "imondrian.db"
    content = bytearray(path.read_bytes())
    content[2 * 4096 : 3 * 4096] = bytes(4096)
    path.write_bytes(content)
    Registry(tmp_path).close()
    modes = {each.name: mode(each) for each in tmp_path.iterdir()}
    assert modes == {"imondrian.db": 0o600, "imondrian.db.damaged": 0o600}


def test_the_service_warns_about_a_token_file_that_others_can_read(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-of-more-than-sixteen")
    for given, n_lines in ((0o644, 2), (0o600, 1)):
        token.chmod(given)
        with Service(tmp_path / "data", "--token-file", str(token)) as service:
            pass
        assert len(service.output.splitlines()) == n_lines, service.output
        assert ("0644" in service.output) == (n_lines == 2)


def test_a_read_only_folder_gives_a_clear_error(tmp_path, monkeypatch):
    Registry(tmp_path).close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # like on a read-only disk, even for root
    with pytest.raises(StorageError, match="must be able to write to it and its folder"):
        Registry(tmp_path)
