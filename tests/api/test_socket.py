"""The control socket: whose it is, who may connect, and a client before a socket that is not."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import threading

import pytest
from serving import Served

from hyperbloom.api.control_socket import (
    SocketBusy,
    SocketError,
    connect_unix,
    free_unix,
    private_files,
)
from hyperbloom.client.client import Client, NodeTimeout, NodeUnreachable


def test_only_its_owner_may_connect(served):
    mode = served.path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_the_mask_is_put_back(tmp_path):
    before = os.umask(0o022)
    try:
        with private_files():
            (tmp_path / "inside").touch(0o777)
        (tmp_path / "outside").touch(0o777)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "inside").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o755


def test_it_is_gone_when_the_node_has_stopped(reactor_thread, tmp_path):
    served = Served(reactor_thread, tmp_path)
    client = served.client()
    assert client.ping()
    served.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(NodeUnreachable, match="no node runs on"):
        client.ping()


def test_a_dead_nodes_socket_is_replaced(reactor_thread, tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control.sock"))
    served = Served(reactor_thread, tmp_path)
    assert served.client().ping()
    served.close()


def test_a_living_nodes_socket_is_refused(served, reactor_thread):
    with pytest.raises(SocketBusy, match="a node already runs on this data folder"):
        Served(reactor_thread, served.folder)
    assert served.client().ping()


def test_a_node_too_busy_to_take_a_connection_is_alive(tmp_path):
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting = []
        try:
            for _ in range(3):
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                waiting.append(one)
                if one.connect_ex(str(path)):
                    break
            with pytest.raises(SocketBusy):
                free_unix(path)
        finally:
            for one in waiting:
                one.close()


def test_what_is_no_socket_is_left_alone(reactor_thread, tmp_path):
    (tmp_path / "control.sock").write_text("precious")
    with pytest.raises(SocketError, match="not a socket; move it"):
        Served(reactor_thread, tmp_path)
    assert (tmp_path / "control.sock").read_text() == "precious"


def test_a_folder_that_is_not_there(reactor_thread, tmp_path):
    with pytest.raises(SocketError, match="cannot be made"):
        Served(reactor_thread, tmp_path / "none")


def opened(folder):
    """How many descriptors of this process are open on the folder."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{descriptor}") == str(folder)
    return found


def test_a_path_longer_than_a_socket_address(reactor_thread, tmp_path):
    folder = tmp_path
    while len(str(folder)) < 200:
        folder = folder / "a-rather-long-name"
    folder.mkdir(parents=True)
    served = Served(reactor_thread, folder)
    assert opened(folder) == 1
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
    assert served.client().put([b"a"])["new"] == 1
    with pytest.raises(SocketBusy):
        Served(reactor_thread, folder)
    served.close()
    assert not list(folder.iterdir())
    assert opened(folder) == 0


def test_a_stop_does_not_wait_for_idle_clients(reactor_thread, tmp_path):
    served = Served(reactor_thread, tmp_path)
    connection = served.connection()
    connection.request("GET", "/v1/ping")
    connection.getresponse().read()
    served.call(served.service.stopService)
    assert connection.sock.recv(1) == b""
    connection.close()


# The client


def test_nothing_there(tmp_path):
    with pytest.raises(NodeUnreachable, match=r"no node runs on .*; start it with"):
        Client(tmp_path / "control.sock").ping()
    with pytest.raises(NodeUnreachable, match="no node runs on"):
        Client(tmp_path / "none" / "control.sock").ping()


def listening(path, answer):
    """A server of one connection: `answer` gets it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve():
        connection, _ = listener.accept()
        with connection, listener:
            answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_a_node_that_does_not_answer_in_time(tmp_path):
    done = threading.Event()
    listening(tmp_path / "s", lambda connection: done.wait(240))
    with pytest.raises(NodeTimeout, match=r"did not answer within 0\.2 s"):
        Client(tmp_path / "s", timeout=0.2).ping()
    done.set()


def test_a_node_that_stops_in_the_middle_of_an_answer(tmp_path):
    def answer(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    listening(tmp_path / "s", answer)
    with pytest.raises(NodeUnreachable, match="broke off"):
        Client(tmp_path / "s").ping()


def test_something_else_on_the_socket(tmp_path):
    def answer(connection):
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    listening(tmp_path / "s", answer)
    with pytest.raises(NodeUnreachable, match="does not speak as a node does"):
        Client(tmp_path / "s").ping()


def test_something_that_is_not_http(tmp_path):
    listening(tmp_path / "s", lambda connection: connection.sendall(b"220 mail\r\n"))
    with pytest.raises(NodeUnreachable, match="broke off"):
        Client(tmp_path / "s").ping()


def test_an_idle_connection_that_the_node_closed_is_opened_again(served):
    client = served.client()
    client.put([b"a"])
    served.call(served.service.site.close)
    assert client.put([b"b"])["new"] == 1
    assert served.client().count()["count"] == 2


def test_connect_closes_what_it_opened(tmp_path):
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        with pytest.raises(FileNotFoundError):
            connect_unix(tmp_path / "none", 1.0)
    # What other tests left may be closed meanwhile.
    assert len(os.listdir("/proc/self/fd")) < before + 30
