"""The command `export`: what it prints, its exit codes, and the nightly script around it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from export_nodes import FEED, MONDAY, NODE, ORIGINS, random_values

from hyperbloom.cli.output import Progress
from hyperbloom.cli.root import hyperbloom
from hyperbloom.export.places.lock import folder_lock
from hyperbloom.store import AppendValues, PutFeed, PutMeta, Store, WriterInline

ROOT = Path(__file__).parents[2]
NIGHTLY = ROOT / "scripts" / "nightly-export"


def run(*arguments):
    return CliRunner().invoke(hyperbloom, ["export", *map(str, arguments)])


def out(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    # Which engine auto took, and nothing else.
    told = r"engine local \(processes of this machine\): .+"
    wanted = (
        rf'(\{{"remark": "{told}"\}}\n)?' if "--json" in arguments else rf"(hyperbloom: {told}\n)?"
    )
    assert re.fullmatch(wanted, result.stderr)
    return result.stdout


def refusal(code, *arguments):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.startswith("hyperbloom: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def target(tmp_path):
    return tmp_path / "tables"


@pytest.fixture
def snapshot(node):
    node.append(random_values(100))
    return node.snapshot()


def test_a_line_a_table(snapshot, target):
    lines = [line.split("\t") for line in out(snapshot, "--to", target).splitlines()]
    assert lines[0] == ["table", "rows", "files", "bytes", "seconds", "rows/s", "version"]
    assert [line[:3] for line in lines[1:]] == [
        ["values", "100", "1"],
        ["links", "0", "0"],
        ["feeds", "1", "1"],
    ]
    assert [line[1] for line in map(str.split, out(snapshot, "--to", target).splitlines()[1:])] == [
        "0",
        "0",
        "0",
    ]


def test_json_and_the_word_run(snapshot, target):
    form = json.loads(out("--json", "run", snapshot, "--to", target, "--tables", "all"))
    assert form["snapshots"] == [f"{NODE.hex()}@{MONDAY + 3_600_000_000}"]
    by_name = {table["table"]: table for table in form["tables"]}
    tables = ["values", "links", "feeds", "objects", "changes", "coverage", "provenance"]
    assert list(by_name) == tables
    assert (by_name["values"]["rows"], by_name["coverage"]["rows"]) == (100, 100)
    again = json.loads(out(snapshot, "--to", target, "--json", "--mode", "full"))
    assert [(t["rows"], t["replaced"]) for t in again["tables"]] == [
        (100, 100),
        (0, 0),
        (1, 1),
        (0, 0),
        (0, 0),
    ]


def test_status(snapshot, target):
    out(snapshot, "--to", target, "--verify")
    (values, *_) = json.loads(out("status", target, "--json"))["tables"]
    assert (values["table"], values["version"], values["rows"], values["files"]) == (
        "values",
        1,
        100,
        1,
    )
    assert [s["node"] for s in values["snapshots"]] == [NODE.hex()]
    assert values["committed_at"] > 1.7e9
    assert [s["taken_at"] for s in values["snapshots"]] == [(MONDAY + 3_600_000_000) / 1e6]
    line = out("status", target).splitlines()[1]
    assert line.startswith("values\t100\t1\t")
    assert (values["cut"], line.rpartition("\t")[2]) == ("day", "day")
    out("compact", target, "--by", "month")
    assert json.loads(out("status", target, "--json"))["tables"][0]["cut"] == "month"


def test_compact_and_vacuum(node, target):
    for n in range(3):
        node.append([b"%d" % n])
        out(node.snapshot(f"{n}"), "--to", target)
    assert out("compact", target).splitlines()[1] == "values\t3\t1"
    assert out("vacuum", target, "--keep", "1h").splitlines()[1] == "values\t0"
    form = json.loads(out("vacuum", target, "--keep", "1s", "--dry-run", "--json"))
    assert (form["dry_run"], len(form["tables"][0]["removed"])) == (True, 3)
    assert out("vacuum", target, "--keep", "1s").splitlines()[1] == "values\t3"
    assert DeltaTable(str(target / "values")).to_pyarrow_dataset().count_rows() == 3


def test_refusals_and_their_exit_codes(snapshot, target, tmp_path):
    assert "no whole snapshot" in refusal(7, tmp_path, "--to", target)
    assert "no tables of an export" in refusal(1, "status", tmp_path)
    assert "no table 'x'; there are values" in refusal(2, snapshot, "--to", target, "--tables", "x")
    assert "--to" in refusal(2, snapshot)
    assert "whole number of MiB" in refusal(2, snapshot, "--to", target, "--file-size", "0")
    with folder_lock(target):
        assert f"process {os.getpid()} works on" in refusal(9, snapshot, "--to", target)


def test_a_snapshot_that_is_damaged_is_found_by_verify(snapshot, target):
    size = (snapshot / "data.mdb").stat().st_size
    os.truncate(snapshot / "data.mdb", size // 2)
    result = run(snapshot, "--to", target, "--verify")
    assert result.exit_code == 7
    assert "cut short" in result.stdout
    assert not target.exists()


def test_without_the_extra_the_command_says_how_to_get_it(snapshot, target, tmp_path):
    # The command works in a child, which must not find it either.
    missing = tmp_path / "missing" / "deltalake.py"
    missing.parent.mkdir()
    missing.write_text("raise ModuleNotFoundError('No module named deltalake', name='deltalake')\n")
    done = subprocess.run(
        [sys.executable, "-m", "hyperbloom.cli", "export", str(snapshot), "--to", str(target)],
        env={**os.environ, "PYTHONPATH": str(missing.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "hyperbloom: deltalake is not installed; "
        "install it with: pip install 'hyperbloom[export]'\n",
    )


@pytest.mark.parametrize("command", [["export", "status"], ["export", "compact"], ["snapshots"]])
def test_who_names_a_configuration_everywhere_is_understood(snapshot, target, command):
    out(snapshot, "--to", target, "-c", "mine.toml")
    folder = snapshot.parent if command == ["snapshots"] else target
    done = CliRunner().invoke(hyperbloom, [*command, str(folder), "-c", "mine.toml"])
    assert done.exit_code == 0, done.output


def test_auto_says_which_engine_it_took_and_why(snapshot, target, monkeypatch):
    done = run(snapshot, "--to", target)
    assert "engine local (processes of this machine): no cluster is named" in done.stderr
    assert run(snapshot, "--to", target).stderr == ""
    monkeypatch.setenv("MASTER", "spark://127.0.0.1:9")
    done = run(snapshot, "--to", target, "--mode", "full")
    assert "engine local (processes of this machine): 100 rows take less time" in done.stderr
    form = json.loads(out(snapshot, "--to", target, "--mode", "full", "--json"))
    assert [table["engine"] for table in form["tables"]] == ["local", None, None]


def test_a_percentage_is_shown_from_the_first_moment(snapshot, target, monkeypatch):
    shown = []
    monkeypatch.setattr(
        Progress, "show", lambda self, text, at_once=False: shown.append((text, at_once))
    )
    out(snapshot, "--to", target, "--engine", "local")
    assert shown[0] == ("", True)
    assert shown[1] == ("[........................]   0% starting the engine local", True)
    assert any(re.fullmatch(r"\[#+\] 100% values: 100 of 100 rows", text) for text, _ in shown)


# The nightly script


class Night:
    """A node at rest, and the script with all it needs."""

    def __init__(self, folder):
        self.folder = folder
        self.snapshots, self.tables = folder / "snapshots", folder / "tables"
        self.program = folder / "hyperbloom"
        self.program.write_text(
            f"#!/bin/sh\nexec '{sys.executable}' -c "
            "'from hyperbloom.cli import main; main()' \"$@\"\n"
        )
        self.program.chmod(0o700)
        result = CliRunner().invoke(hyperbloom, ["init", str(folder / "node")])
        assert result.exit_code == 0, result.output

    def append(self, *values):
        with closing(Store.open(self.folder / "node" / "store")) as store:
            writer = WriterInline(store)
            for operation in (
                PutMeta("node_id", NODE),
                PutFeed(FEED, {}),
                AppendValues(FEED, values, ORIGINS[0], MONDAY),
            ):
                writer.submit(operation, lambda result: None)

    def run(self, *options):
        return subprocess.run(
            [
                str(NIGHTLY),
                "-c",
                str(self.folder / "node" / "hyperbloom.toml"),
                "--snapshots",
                str(self.snapshots),
                "--to",
                str(self.tables),
                *options,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HYPERBLOOM": str(self.program)},
        )

    def values(self):
        table = DeltaTable(str(self.tables / "values")).to_pyarrow_dataset().to_table(["value"])
        return sorted(table.column("value").to_pylist())

    def kept(self):
        return sorted(path.name for path in self.snapshots.iterdir() if path.name[0] != ".")


@pytest.fixture
def night(tmp_path):
    return Night(tmp_path)


def test_every_night_brings_what_is_new_and_few_snapshots_stay(night):
    night.append(b"1", b"2")
    done = night.run("--", "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert night.values() == [b"1", b"2"]
    (night.snapshots / "my own folder").mkdir()
    for _ in range(3):
        done = night.run("--keep", "2")
        assert done.returncode == 0, done.stderr
    assert night.values() == [b"1", b"2"]
    times = [name for name in night.kept() if name != "my own folder"]
    assert len(times) == 2
    assert all(len(name) == 16 for name in times)
    assert "my own folder" in night.kept()


def test_a_night_notes_that_it_succeeded_and_one_that_fails_does_not(night):
    """The file's age is what `/metrics` tells."""
    note = night.folder / "node" / "last-export"
    night.append(b"1")
    assert night.run("--", "--tables", "none-such").returncode == 2
    assert not note.exists()
    assert night.run().returncode == 0
    assert note.read_text().startswith("exported 2")
    os.utime(note, (1, 1))
    assert night.run("--", "--tables", "none-such").returncode == 2
    assert note.stat().st_mtime == 1
    assert night.run().returncode == 0
    assert note.stat().st_mtime > 1


def test_of_two_nights_at_once_the_second_says_so(night):
    night.append(b"1")
    night.snapshots.mkdir()
    with (night.snapshots / ".nightly-export.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = night.run()
    assert done.returncode == 9
    assert "another nightly export works on" in done.stderr
    assert night.kept() == []


def test_a_night_that_fails_says_why_and_keeps_what_is_there(night):
    done = night.run()
    assert done.returncode == 7
    assert "there is no store" in done.stderr
    assert night.run("--keep", "0").returncode == 2
    assert night.run("--what").returncode == 2


def test_nights_whose_export_fails_keep_no_more_snapshots_than_others(night):
    night.append(b"1")
    night.tables.write_text("in the way")
    for _ in range(3):
        done = night.run("--keep", "2")
        assert done.returncode == 1, done.stderr
        assert "cannot be written" in done.stderr
    assert len(night.kept()) == 2
