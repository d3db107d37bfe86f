"""One reading of a source: what is new, what has gone, and what it costs nothing to see again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.inputs import limits, sources
from hyperbloom.inputs.comparing import Difference, compare
from hyperbloom.inputs.reading import Request, answer_to

SOURCE = b"# names\none.example\ntwo.example\n\nthree.example\ntwo.example\n"


class Reader:
    """Reads one source again and again, as the node does: `next` becomes `known`."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "source"
        self.known = folder / "known"
        self.out = folder / "out"
        self.out.mkdir()
        self.validators: dict[str, Any] = {}

    def request(self, **options: Any) -> dict[str, Any]:
        return {
            "path": str(self.source),
            "max_bytes": 1_000_000,
            "seconds": 60.0,
            "known": str(self.known),
            "folder": str(self.out),
            **self.validators,
            **options,
        }

    def read(self, *, take: bool = True, **options: Any) -> dict[str, Any]:
        for file in self.out.iterdir():
            file.unlink()
        answer = answer_to(Request(**self.request(**options)), now=time.monotonic())
        assert len(json.dumps(answer)) < 2_000
        if take and answer["outcome"] == "read":
            (self.out / "next").rename(self.known)
        if take and answer["outcome"] != "failed":
            self.validators = {key: answer[key] for key in ("etag", "last_modified")}
        return answer

    def values(self, name: str) -> list[bytes]:
        return (self.out / name).read_bytes().split(b"\n")[:-1]

    def reads(self, source: bytes, **options: Any) -> dict[str, Any]:
        self.source.write_bytes(source)
        return self.read(**options)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def counts(answer: dict[str, Any]) -> tuple[int, int, int]:
    assert answer["outcome"] == "read"
    return answer["values"], answer["new"], answer["gone"]


class TestFiles:
    def test_the_first_time(self, reader: Reader) -> None:
        answer = reader.reads(SOURCE, take=False)
        assert counts(answer) == (3, 3, 0)
        assert answer["left_out"] == {}
        assert reader.values("next") == [b"one.example", b"two.example", b"three.example"]
        assert reader.values("new") == reader.values("next")
        assert reader.values("gone") == []

    def test_an_empty_source(self, reader: Reader) -> None:
        assert counts(reader.reads(b"# nothing\n")) == (0, 0, 0)
        assert reader.known.read_bytes() == b""
        reader.reads(SOURCE)
        assert counts(reader.reads(b"", take=False)) == (0, 0, 3)
        assert reader.values("gone") == reader.known.read_bytes().split()

    def test_the_same_bytes_are_not_read_as_values(
        self, reader: Reader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader.reads(SOURCE)
        monkeypatch.setattr("hyperbloom.inputs.reading.compare", None)
        answer = reader.read()
        assert (answer["outcome"], answer["values"]) == ("unchanged", 3)
        assert list(reader.out.iterdir()) == []

    @pytest.mark.parametrize(
        "source",
        [
            b"# of today\n" + SOURCE,
            b"three.example\r\none.example\r\n two.example",
            b"one.example\ntwo.example\nthree.example",
        ],
    )
    def test_the_same_values(self, reader: Reader, source: bytes) -> None:
        reader.reads(SOURCE)
        known = reader.known.read_bytes()
        for _ in range(2):
            answer = reader.reads(source)
            assert (answer["outcome"], answer["values"]) == ("unchanged", 3)
        assert reader.known.read_bytes() == known

    def test_what_is_new_and_what_has_gone(self, reader: Reader) -> None:
        reader.reads(SOURCE)
        answer = reader.reads(b"one.example\nfour.example\n\0\ntwo.example\n", take=False)
        assert counts(answer) == (3, 1, 1)
        assert answer["left_out"] == {"line_end_or_nul": 1}
        assert reader.values("new") == [b"four.example"]
        assert reader.values("gone") == [b"three.example"]
        assert reader.values("next") == [b"one.example", b"four.example", b"two.example"]

    def test_values_that_were_added_to_the_known_ones(self, reader: Reader) -> None:
        """While a reading is held back the node adds what is new: not a source's order any more."""
        reader.reads(SOURCE)
        with reader.known.open("ab") as file:
            file.write(b"five.example\none.example\n")
        answer = reader.read(take=False)
        assert counts(answer) == (3, 0, 1)
        assert reader.values("gone") == [b"five.example"]

    @pytest.mark.parametrize("missing", ["known", "token"])
    def test_without_what_was_known_all_is_read(self, reader: Reader, missing: str) -> None:
        reader.reads(SOURCE)
        if missing == "known":
            reader.known.unlink()
            assert counts(reader.read()) == (3, 3, 0)
        else:
            assert reader.read(etag=None, last_modified=None)["outcome"] == "unchanged"

    def test_other_settings_read_the_same_bytes_anew(self, reader: Reader) -> None:
        reader.reads(b"a.example,one.example\n")
        assert counts(reader.read(format="csv", column="2")) == (1, 1, 1)
        assert counts(reader.read(format="csv", column="1")) == (1, 1, 1)
        assert reader.read(format="csv", column="1")["outcome"] == "unchanged"

    def test_the_longest_value_of_the_node(self, reader: Reader) -> None:
        answer = reader.reads(b"abc\nabcd\n", max_value_bytes=3)
        assert counts(answer) == (1, 1, 0)
        assert answer["left_out"] == {"too_long": 1}


def problem(answer: dict[str, Any]) -> str:
    assert set(answer) == {"outcome", "problem"}
    assert answer["outcome"] == "failed"
    assert answer["problem"].isprintable()
    return str(answer["problem"])


class TestFilesThatAreNone:
    def test_not_there(self, reader: Reader) -> None:
        assert "cannot be opened: No such file" in problem(reader.read())
        assert "cannot be opened: that is no path" in problem(reader.read(path="a\0b"))

    @pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
    def test_no_regular_file(self, reader: Reader, kind: str) -> None:
        if kind == "folder":
            reader.source.mkdir()
        elif kind == "fifo":
            os.mkfifo(reader.source)
        else:
            reader.source.symlink_to("/dev/zero")
        assert "is no file but a folder, device or pipe" in problem(reader.read())

    def test_too_long(self, reader: Reader) -> None:
        assert reader.reads(SOURCE, max_bytes=len(SOURCE))["outcome"] == "read"
        assert "more than" in problem(reader.read(max_bytes=len(SOURCE) - 1))

    def test_a_file_that_grows_beyond_it_while_it_is_read(self, tmp_path: Path) -> None:
        grown = tmp_path / "grown"
        grown.write_bytes(b"a" * 10)
        with sources.open_file(str(grown), (), 10) as file:
            grown.write_bytes(b"a" * 11)
            with pytest.raises(sources.SourceRefused, match="more than 10 bytes"):
                sources.digest_of(file, 10)

    @pytest.mark.parametrize("changes", [1, 2, 3])
    def test_a_file_that_changes_is_read_again(
        self, reader: Reader, monkeypatch: pytest.MonkeyPatch, changes: int
    ) -> None:
        reader.source.write_bytes(SOURCE)
        real = sources.digest_of
        left = list(range(changes))

        def digest_of(*arguments: Any) -> str:
            found = real(*arguments)
            if left:
                reader.source.write_bytes(b"%d.example\n" % left.pop())
            return found

        monkeypatch.setattr("hyperbloom.inputs.reading.digest_of", digest_of)
        if changes == 3:
            assert "changes while it is read" in problem(reader.read())
        else:
            assert counts(reader.read(take=False)) == (1, 1, 0)
            assert reader.values("next") == [b"0.example"]

    def test_a_source_that_takes_too_long(self, reader: Reader) -> None:
        assert "it took too long to read" in problem(reader.reads(SOURCE, seconds=0.0))

    def test_a_format_that_is_none(self, reader: Reader) -> None:
        assert "is no format" in problem(reader.reads(SOURCE, format="csv"))
        assert "no JSON" in problem(reader.reads(SOURCE, format="json"))

    def test_a_folder_that_is_not_there(self, reader: Reader) -> None:
        reader.source.write_bytes(SOURCE)
        missing = answer_to(Request(**reader.request(folder="/nowhere")), now=time.monotonic())
        assert "the data folder cannot be used: No such file" in problem(missing)

    def test_a_sentence_is_short(self, reader: Reader) -> None:
        answer = reader.reads(SOURCE, format="csv", column="\u00fc" * 5_000)
        assert len(problem(answer)) <= 600


VALUES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"ee", b"f"]), max_size=12)


@given(
    slices=st.lists(VALUES.filter(bool), max_size=4), known=VALUES | st.none(), end=st.booleans()
)
def test_differences_are_those_of_sets(
    tmp_path_factory: pytest.TempPathFactory,
    slices: list[list[bytes]],
    known: Sequence[bytes] | None,
    end: bool,
) -> None:
    folder = tmp_path_factory.mktemp("compare")
    path = folder / "known"
    if known is not None:
        path.write_bytes(b"\n".join(known) + (b"\n" if end and known else b""))
    found = compare(iter(slices), path, folder)
    values, before = {it for some in slices for it in some}, set(known or ())
    assert (found.new, found.gone) == (len(values - before), len(before - values))
    if known is None or found.new or found.gone:
        names = ("next", "new", "gone")
        nexts, new, gone = ((folder / it).read_bytes().split(b"\n") for it in names)
        assert [it.pop() for it in (nexts, new, gone)] == [b"", b"", b""]
        # Each once, in the order of the source.
        assert nexts == list(dict.fromkeys(it for some in slices for it in some))
        assert new == [it for it in nexts if it not in before]
        assert sorted(gone) == sorted(before - values)
        assert found.values == len(values)
    elif len(set(known)) == len(known):
        assert found.values == len(values)


def test_nothing_differs_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "known").write_bytes(b"a\nb\n")
    found = compare(iter([[b"b"], [b"a"]]), tmp_path / "known", tmp_path)
    assert found == Difference(values=2, new=0, gone=0)
    assert [it.name for it in tmp_path.iterdir()] == ["known"]


class TestProcess:
    def run(self, given: str) -> dict[str, Any]:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "hyperbloom.inputs.reading"],
            input=given.encode(),
            capture_output=True,
            timeout=120,
            check=True,
        )
        assert ended.stderr == b""
        assert ended.stdout.count(b"\n") == 1
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    def test_a_request_and_its_answer(self, reader: Reader) -> None:
        reader.source.write_bytes(HOSTS)
        answer = self.run(json.dumps(reader.request(format="hosts")))
        assert counts(answer) == (1, 1, 0)
        assert answer["left_out"] == {"reserved": 1}
        assert reader.values("next") == [b"a.example"]

    @pytest.mark.parametrize("given", ["", "[]", "{}", '{"patth": 1}', "\0"])
    def test_what_is_no_request(self, given: str) -> None:
        assert "the request is none" in problem(self.run(given))

    def test_it_loads_nothing_that_it_does_not_need(self, reader: Reader) -> None:
        """Its start is time that people wait for."""
        reader.source.write_bytes(SOURCE)
        told = (
            "import sys\nfrom hyperbloom.inputs import reading\nreading.main()\n"
            "print(*sorted({it.partition('.')[0] for it in sys.modules}))"
        )
        ended = subprocess.run(
            [sys.executable, "-P", "-c", told],
            input=json.dumps(reader.request()).encode(),
            capture_output=True,
            timeout=120,
            check=True,
        )
        loaded = ended.stdout.decode().splitlines()[1].split()
        assert "hyperbloom" in loaded
        assert not {"twisted", "numpy", "urllib3", "idna", "lmdb"}.intersection(loaded)


HOSTS = b"0.0.0.0 a.example localhost\n"


def test_the_answer_fits_what_a_node_keeps_of_a_program() -> None:
    """With a token of the longest headers, each sign of which takes two in JSON."""
    validators = sources.Validators(
        etag="\\" * limits.MAX_VALIDATOR_BYTES, last_modified='"' * limits.MAX_VALIDATOR_BYTES
    )
    from hyperbloom.inputs.reading import _validators
    from hyperbloom.integrations.limits import OUTPUT_TAIL_BYTES

    told = json.dumps(_validators("a" * 64, "b" * 64, validators))
    assert len(told) < OUTPUT_TAIL_BYTES - 900
