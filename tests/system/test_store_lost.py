"""The file of a store lost, damaged, or on a full disk: nothing is lost in silence."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import struct
import urllib.error
import urllib.request

import pytest
from nodes import RealNode, free_port, wait_until
from test_failures import one_sentence

from hyperbloom.api.problems import Problem
from hyperbloom.client.client import NodeTimeout, NodeUnreachable
from hyperbloom.store import Store
from hyperbloom.store.backup.snapshot import load_snapshot_info

PAGE = 4096


def health(port: int) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=240) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def errors_in_log(node: RealNode) -> list[str]:
    lines = node.log_path.read_text(errors="replace").splitlines()
    return [line for line in lines if re.search(r"[#](error|critical)\]", line)]


@pytest.fixture
def served(nodes):
    """A started node with 20 values and `/health` over TCP."""
    port = free_port()
    owner = nodes.make("owner", config=f'[api]\nlisten = "127.0.0.1:{port}"\n').start()
    owner.api_port = port
    owner.put(*(b"kept %d" % number for number in range(20)))
    return owner


def remove(node: RealNode) -> None:
    (node.folder / "store" / "data.mdb").unlink()


def remove_all(node: RealNode) -> None:
    shutil.rmtree(node.folder / "store")


def replace_by_copy(node: RealNode) -> None:
    data = node.folder / "store" / "data.mdb"
    shutil.copy(data, data.with_suffix(".copy"))
    data.with_suffix(".copy").rename(data)


def replace_folder(node: RealNode) -> None:
    store = node.folder / "store"
    shutil.copytree(store, node.folder / "copy")
    store.rename(node.folder / "moved")
    (node.folder / "copy").rename(store)


def replace_by_another(node: RealNode) -> None:
    other = Store.open(node.folder / "other")
    other.close()
    (node.folder / "other" / "data.mdb").rename(node.folder / "store" / "data.mdb")


@pytest.mark.parametrize(
    "lose", [remove, remove_all, replace_by_copy, replace_folder, replace_by_another]
)
def test_nothing_is_acknowledged_that_a_restart_would_not_find(served, lose):
    assert health(served.api_port) == (200, b'{"status":"ok"}')
    lose(served)
    acknowledged = []
    for number in range(5):
        with contextlib.suppress(Problem):
            served.put(b"new %d" % number)
            acknowledged.append(number)
    assert acknowledged == []
    with pytest.raises(Problem, match="take a snapshot of the running node"):
        served.put(b"told")
    told = served.command("put", "told")
    assert (told.returncode, b"Traceback" in told.stderr) == (7, False)
    # Reading goes on, health, status and log say it, the log once.
    assert len(served.values()) == 20
    assert health(served.api_port) == (503, b'{"status":"failing"}')
    assert "data.mdb" in served.command("status").stdout.decode()
    assert len([line for line in errors_in_log(served) if "takes no writes" in line]) == 1
    # The cure that the sentence names.
    out = served.folder / "rescued"
    done = served.command("snapshot", str(out))
    assert done.returncode == 0, done.stderr
    assert sum(feed.count for feed in load_snapshot_info(out).feeds) == 20
    served.stop()
    restored = served.command("restore", str(out), "--replace")
    assert restored.returncode == 0, restored.stderr
    served.start()
    assert len(served.values()) == 20
    assert served.put(b"after") == 1
    assert health(served.api_port)[0] == 200


def test_a_folder_that_is_put_back_goes_on(served):
    store = served.folder / "store"
    store.rename(served.folder / "elsewhere")
    with pytest.raises(Problem):
        served.put(b"lost")
    (served.folder / "elsewhere").rename(store)
    assert served.put(b"kept") == 1
    assert health(served.api_port)[0] == 200
    wait_until(
        lambda: "takes writes again" in served.log_path.read_text(), 20, "the log says that it ends"
    )
    served.kill()
    served.start()
    assert b"kept" in served.values()


@pytest.mark.parametrize("marks", [("store.used", "lock.mdb"), ("lock.mdb",), ("store.used",)])
def test_a_used_store_without_its_file_is_no_new_one(served, marks):
    served.stop()
    store = served.folder / "store"
    for file in store.iterdir():
        if file.name not in marks:
            file.unlink()
    text = one_sentence(served.command("run"), 7)
    assert "lost its data file" in text
    assert "restore" in text
    assert not (store / "data.mdb").exists()
    shutil.rmtree(store)
    served.start()
    assert served.values() == []


def test_a_store_of_another_node_is_not_taken_over(nodes, served):
    other = nodes.make("other").start()
    other.put(b"not mine")
    other.stop()
    served.stop()
    shutil.copy(other.folder / "store" / "data.mdb", served.folder / "store" / "data.mdb")
    text = one_sentence(served.command("run"), 7)
    assert other.key.hex() in text
    assert "seed" in text


def damage_leaves(node: RealNode, marker: bytes) -> None:
    """Let the leaf pages with this value have more nodes than fit, all outside of the page."""
    data = node.folder / "store" / "data.mdb"
    content = data.read_bytes()
    with data.open("r+b") as file:
        for page in range(2, len(content) // PAGE):
            head = content[page * PAGE : (page + 1) * PAGE]
            _, _, flags, lower, upper = struct.unpack_from("=QHHHH", head)
            if flags & 2 and marker in head and 16 < lower < upper < PAGE:
                file.seek(page * PAGE + 12)
                file.write(struct.pack("=HH", PAGE - 2, 3))
                file.seek(page * PAGE + 16)
                file.write(b"\xfe\x0f" * ((lower - 16) // 2))


def scatter_nodes(node: RealNode, marker: bytes) -> None:
    """Let the leaf pages with this value have their nodes 64 KiB further on, behind the file."""
    data = node.folder / "store" / "data.mdb"
    content = data.read_bytes()
    with data.open("r+b") as file:
        for page in range(2, len(content) // PAGE):
            head = content[page * PAGE : (page + 1) * PAGE]
            _, _, flags, lower, _ = struct.unpack_from("=QHHHH", head)
            if flags & 2 and marker in head:
                file.seek(page * PAGE + 16)
                file.write(b"\xf0\xff" * ((min(lower, PAGE) - 16) // 2))


def test_a_page_damaged_while_the_node_runs_is_said_in_the_log(served):
    damage_leaves(served, b"kept 7")
    for _ in range(3):
        with pytest.raises(Problem, match="damaged"):
            served.put(b"kept 7", b"kept 7 and more")
    wait_until(lambda: errors_in_log(served), 20, "the log says it")
    (damage,) = [line for line in errors_in_log(served) if "Damage was found" in line]
    assert "hyperbloom verify" in damage
    assert "hyperbloom restore" in damage
    assert health(served.api_port) == (503, b'{"status":"failing"}')
    status = served.command("status")
    assert "damaged" in (status.stdout + status.stderr).decode()


def test_a_page_that_ended_the_process_is_told_of_at_the_next_start(served):
    scatter_nodes(served, b"kept 7")
    with contextlib.suppress(Problem, NodeUnreachable, NodeTimeout, OSError):
        served.values()
    assert served.process.wait(240) in (-signal.SIGABRT, -signal.SIGBUS, -signal.SIGSEGV)
    served.start()
    (told,) = errors_in_log(served)
    assert "fatal error while it used the store" in told
    assert "hyperbloom verify" in told
    assert "hyperbloom restore" in told
    assert served.stop()
    # It is said once.
    served.start()
    assert errors_in_log(served) == [told]


def test_the_log_says_once_that_the_disk_is_full_and_when_it_is_not(nodes):
    port = free_port()
    owner = nodes.make("owner", config=f'[api]\nlisten = "127.0.0.1:{port}"\n')
    limit = 3_000_000
    owner.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1)))
    refused = 0
    for number in range(200):
        try:
            owner.put(*(b"%03d" % number + os.urandom(1_000) for _ in range(50)))
        except Problem:
            refused += 1
            if refused == 20:
                break
    assert refused == 20
    said = [line for line in errors_in_log(owner) if "no room on the disk" in line]
    assert len(said) == 1
    assert health(port)[0] == 503
    assert "no room on the disk" in owner.command("status").stdout.decode()
    resource.prlimit(owner.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    assert owner.put(b"there is room") == 1
    wait_until(lambda: "takes writes again" in owner.log_path.read_text(), 20, "the log says so")
    assert health(port)[0] == 200
