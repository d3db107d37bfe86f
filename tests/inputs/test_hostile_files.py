"""Somebody who may write where a source lies, and would have the node publish what he may not read.

The process that the node starts reads what he leaves there: links, hard links, folders that change
meanwhile, keys, and a list that takes more memory than there is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hyperbloom.inputs import opening
from hyperbloom.inputs.formats.parsing import SourceRefused
from hyperbloom.inputs.opening import open_source
from hyperbloom.keys import create_key_file

STRANGER, FRIEND = 54_321, 54_322
SEED = bytes(range(32))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make others' files")


def read(folder: Path, path: Path, *own: Path, **options: Any) -> dict[str, Any]:
    """What the reading process says of a source, and how much memory it took (`peak`)."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    (out / "next").unlink(missing_ok=True)
    request = {
        "path": str(path),
        "max_bytes": 1 << 30,
        "seconds": 240.0,
        "known": str(folder / "known"),
        "folder": str(out),
        **({"own": [str(one) for one in own]} if own else {}),
        **options,
    }
    # What the system counts for a child that has ended begins with the memory of its parent.
    script = (
        "import sys; from hyperbloom.inputs import reading; code = reading.main();"
        "status = open('/proc/self/status').read();"
        "print(status.split('VmHWM:')[1].split()[0]); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answer, peak = done.stdout.splitlines()
    return {**json.loads(answer), "peak": int(peak) << 10}


def refused(folder: Path, path: Path, *own: Path, **options: Any) -> str:
    """The sentence, where nothing of the file is read."""
    answer = read(folder, path, *own, **options)
    assert answer["outcome"] == "failed", answer
    assert not (folder / "out" / "next").exists()
    assert SEED.hex() not in json.dumps(answer)
    return str(answer["problem"])


def values(folder: Path, path: Path, *own: Path) -> bytes:
    assert read(folder, path, *own)["outcome"] == "read"
    return (folder / "out" / "next").read_bytes()


def link(place: Path, target: Path | str, owner: int) -> Path:
    place.symlink_to(target)
    os.chown(place, owner, owner, follow_symlinks=False)
    return place


def secret(folder: Path, owner: int = 0) -> Path:
    path = folder / "secret.txt"
    path.write_text("what the node may read\n")
    os.chown(path, owner, owner)
    return path


@needs_root
class TestLinks:
    def test_to_what_is_not_his(self, tmp_path: Path) -> None:
        place = link(tmp_path / "list", secret(tmp_path), STRANGER)
        assert "symbolic link of somebody" in refused(tmp_path, place)

    def test_to_what_is_a_third_persons(self, tmp_path: Path) -> None:
        place = link(tmp_path / "list", secret(tmp_path, FRIEND), STRANGER)
        assert "symbolic link of somebody" in refused(tmp_path, place)

    def test_in_the_place_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "private").mkdir()
        secret(tmp_path / "private")
        place = link(tmp_path / "lists", "private", STRANGER)
        assert "symbolic link of somebody" in refused(tmp_path, place / "secret.txt")

    def test_that_leads_to_a_link_of_roots(self, tmp_path: Path) -> None:
        inner = link(tmp_path / "inner", secret(tmp_path), 0)
        place = link(tmp_path / "list", inner, STRANGER)
        assert "symbolic link of somebody" in refused(tmp_path, place)

    @pytest.mark.parametrize("owner", [0, STRANGER])
    def test_that_are_as_they_should_be(self, tmp_path: Path, owner: int) -> None:
        """Root's to any file, and one's own to one's own."""
        file = secret(tmp_path, STRANGER)
        (tmp_path / "deep").mkdir()
        inner = link(tmp_path / "deep" / "inner", "../secret.txt", owner)
        folder = link(tmp_path / "folder", str(tmp_path) + "//deep/.", owner)
        place = link(tmp_path / "list", "./folder/../deep/inner", owner)
        for path in (inner, folder / "inner", place, tmp_path / "deep" / ".." / file.name):
            assert values(tmp_path, path) == b"what the node may read\n"


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "do not end" in refused(tmp_path, tmp_path / "a")
    for number in range(40):
        (tmp_path / str(number)).symlink_to(str(number + 1))
    (tmp_path / "40").write_text("a\n")
    assert values(tmp_path, tmp_path / "0") == b"a\n"
    (tmp_path / "begin").symlink_to("0")
    assert "do not end" in refused(tmp_path, tmp_path / "begin")


class TestTheNodesOwn:
    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        data = tmp_path / "data"
        (data / "store").mkdir(parents=True)
        (data / "store" / "data.mdb").write_bytes(b"value\n")
        create_key_file(data / "identity.key", SEED)
        return data

    @pytest.mark.parametrize("name", ["identity.key", "store/data.mdb"])
    @pytest.mark.parametrize("way", ["named", "linked", "folder", "hard"])
    def test_is_refused_by_whatever_way(
        self, tmp_path: Path, data: Path, name: str, way: str
    ) -> None:
        target, place = data / name, tmp_path / "list"
        own = (data, data / "store")
        if way == "named":
            place = target
        elif way == "linked":
            place.symlink_to(target)
        elif way == "folder":
            place.symlink_to(target.parent)
            place = place / target.name
        else:
            os.link(target, place)
        assert "the node's own" in refused(tmp_path, place, *own)

    def test_credentials_are(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "credentials"
        folder.mkdir()
        (folder / "api.token").write_text("token\n")
        (tmp_path / "list").symlink_to(folder / "api.token")
        assert values(tmp_path, tmp_path / "list") == b"token\n"
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
        assert "the node's own" in refused(tmp_path, tmp_path / "list")

    def test_what_lies_beside_is_read(self, tmp_path: Path, data: Path) -> None:
        (tmp_path / "list").write_text("a\n")
        assert values(tmp_path, data / ".." / "list", data / "store", tmp_path / "gone") == b"a\n"


class TestKeys:
    def test_of_hyperbloom(self, tmp_path: Path) -> None:
        create_key_file(tmp_path / "backup", SEED)
        assert "private key" in refused(tmp_path, tmp_path / "backup")
        (tmp_path / "backup").write_text(SEED.hex())
        assert "private key" in refused(tmp_path, tmp_path / "backup")

    def test_of_others(self, tmp_path: Path) -> None:
        for kind in ("", "RSA ", "OPENSSH ", "ENCRYPTED "):
            text = f"# mine\n-----BEGIN {kind}PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
            (tmp_path / "key").write_text(text)
            assert "private key" in refused(tmp_path, tmp_path / "key")

    def test_a_list_of_one_hash_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "list").write_text(SEED.hex() + "\n")
        (tmp_path / "list").chmod(0o644)
        assert values(tmp_path, tmp_path / "list") == SEED.hex().encode() + b"\n"
        (tmp_path / "list").write_text(2 * (SEED.hex() + "\n") + "a\n")
        (tmp_path / "list").chmod(0o600)
        assert values(tmp_path, tmp_path / "list") == SEED.hex().encode() + b"\na\n"


def swapped(monkeypatch: pytest.MonkeyPatch, when: int, swap: Callable[[], None]) -> None:
    """Do something to the files before the reader's call of `os.open` with this number."""
    real, calls = os.open, [0]

    def slow(*arguments: Any, **more: Any) -> int:
        calls[0] += 1
        if calls[0] == when:
            swap()
        return real(*arguments, **more)

    monkeypatch.setattr(opening.os, "open", slow)


class TestWhatChangesMeanwhile:
    """Whatever is swapped at whatever step: what was looked at is what is read, or nothing is."""

    @pytest.mark.parametrize("kind", ["link", "folder link", "fifo"])
    def test_no_moment_is_a_gap(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        private = tmp_path / "private"
        private.mkdir()
        (private / "list").write_text("secret\n")
        lists, aside = tmp_path / "lists", tmp_path / "aside"

        def swap() -> None:
            if kind == "folder link":
                lists.rename(aside)
                lists.symlink_to(private)
                return
            (lists / "list").unlink()
            if kind == "link":
                (lists / "list").symlink_to(private / "list")
            else:
                os.mkfifo(lists / "list")

        steps = len(lists.parts) + 2
        for when in range(1, steps + 1):
            lists.mkdir()
            (lists / "list").write_text("public\n")
            with monkeypatch.context() as patch:
                swapped(patch, when, swap)
                found = b""
                with suppress(SourceRefused), open_source(str(lists / "list"), [str(private)]) as f:
                    found = f.read()
                assert found in (b"", b"public\n"), when
            for path in (lists, aside):
                if path.is_symlink():
                    path.unlink()
                elif path.exists():
                    (path / "list").unlink(missing_ok=True)
                    path.rmdir()

    def test_nothing_stays_open(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("a\n")
        (tmp_path / "link").symlink_to("/")
        before = len(os.listdir("/proc/self/fd"))
        ways = (
            "file",
            "file/below",
            "link",
            f"link/{tmp_path}/file",
            "missing",
            "a\0b",
            "/dev/null",
        )
        for way in ways:
            try:
                open_source(str(tmp_path / way), [str(tmp_path / "own")]).close()
            except SourceRefused:
                continue
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_list_takes_no_more_memory_than_it_may(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        for start in range(0, 2_500_000, 10_000):
            file.write(b"".join(b"%07d.example\n" % n for n in range(start, start + 10_000)))
    answer = read(tmp_path, path, max_memory=128 << 20)
    assert answer["outcome"] == "failed"
    assert "134217728 bytes of memory" in answer["problem"]
    assert "max_memory" in answer["problem"]
    assert answer["peak"] < 180 << 20
    whole = read(tmp_path, path, max_memory=1 << 30)
    assert (whole["outcome"], whole["values"]) == ("read", 2_500_000)
    assert whole["peak"] > 200 << 20, "as much as it is refused for"


def test_the_kernel_ends_the_reader_before_the_node(tmp_path: Path) -> None:
    """Where memory runs out the one with the highest score goes first."""
    script = (
        "from hyperbloom.inputs import reading\n"
        "reading.answer_to = lambda *a, **k: {'score': open('/proc/self/oom_score_adj').read()}\n"
        "reading.main()\n"
    )
    request = {"max_bytes": 1, "seconds": 1.0, "known": "", "folder": ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout) == {"score": "1000\n"}
