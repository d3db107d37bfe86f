"""Values from a pipe: any amount, any pace, in bounded batches."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.cli.streams import (
    BATCH_BYTES,
    BATCH_VALUES,
    MAX_LINE_BYTES,
    MAX_VALUE_BYTES,
    batches,
)

PAUSE = object()


def piped(*parts, as_hex=False, null=False):
    """The batches of what is written in parts; PAUSE waits until a batch was taken."""
    reading, writing = os.pipe()
    taken = threading.Semaphore(0)

    def write():
        # Who reads stops at the first bad line, and closes the pipe.
        with suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as pipe:
            for part in parts:
                if part is PAUSE:
                    assert taken.acquire(timeout=240)
                else:
                    left = memoryview(part)
                    while left:
                        left = left[pipe.write(left) :]

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        for batch in batches(reading, as_hex=as_hex, null=null):
            taken.release()
            yield batch
    finally:
        os.close(reading)


def values_of(*parts, **more):
    return [value for batch in piped(*parts, **more) for value in batch]


def test_lines():
    assert values_of(b"a\nb\n\nc") == [b"a", b"b", b"c"]
    assert values_of(b"a\nb\n") == [b"a", b"b"]
    assert values_of(b"") == []
    assert values_of(b"\n\n") == []
    assert values_of(b" a \n\0\n") == [b" a ", b"\0"]


def test_a_line_in_many_parts():
    assert values_of(b"ab", b"c", b"d\ne", b"f") == [b"abcd", b"ef"]


def test_hex():
    assert values_of(b"00ff\n 61 62 \r\n\n", as_hex=True) == [b"\0\xff", b"ab"]
    with pytest.raises(click.ClickException, match="'zz' is not hex"):
        values_of(b"61\nzz\n", as_hex=True)


def test_batches_are_bounded_in_number_and_size():
    lines = b"".join(b"%06d\n" % number for number in range(12_000))
    found = list(piped(lines))
    assert max(map(len, found)) <= BATCH_VALUES
    assert sum(map(len, found)) == 12_000
    big = b"".join(b"%c" % letter + b"x" * 200_000 + b"\n" for letter in b"abcdef")
    found = list(piped(big))
    assert max(sum(map(len, batch)) for batch in found) <= BATCH_BYTES
    assert sum(map(len, found)) == 6


def test_a_slow_source_is_not_waited_for():
    """What has come is sent while more may come: `tail -f | hyperbloom put -`."""
    assert list(piped(b"a\nb\n", PAUSE, b"c\n", PAUSE, b"d")) == [[b"a", b"b"], [b"c"], [b"d"]]


def test_a_line_that_no_value_can_be_is_refused_before_it_ends():
    with pytest.raises(click.ClickException, match="line 2 of standard input"):
        values_of(b"a\n", b"x" * (MAX_VALUE_BYTES + 65_537))
    with pytest.raises(click.ClickException, match="line 1 of standard input"):
        values_of(b"6" * (MAX_LINE_BYTES + 1), as_hex=True)
    with pytest.raises(click.ClickException, match="value 2 of standard input"):
        values_of(b"a\n\0", b"x" * (MAX_VALUE_BYTES + 65_537), null=True)


@pytest.mark.parametrize(
    ("more", "end", "options"),
    [
        (b"x", b"\n", {}),
        (b"x", b"\r\n", {}),
        (b"x", b"", {}),
        (b"78", b"\n", {"as_hex": True}),
        (b"78", b" \r\n", {"as_hex": True}),
        (b"x", b"\0", {"null": True}),
        (b"\r", b"\0", {"null": True}),
        (b"78", b"\0", {"null": True, "as_hex": True}),
    ],
)
def test_the_longest_value_passes_and_one_byte_more_is_told_of_with_its_line(more, end, options):
    before = b"a\n\n" if "null" not in options else b"a\0\0"
    before = before.replace(b"a", b"61") if "as_hex" in options else before
    longest = MAX_VALUE_BYTES * (b"78" if "as_hex" in options else b"x")
    assert values_of(before + longest + end, **options) == [b"a", b"x" * MAX_VALUE_BYTES]
    with pytest.raises(click.ClickException, match=r" 3 .* the 261,049 bytes that a value may"):
        values_of(before + longest + more + end, **options)


def test_values_that_end_in_nul_hold_everything_else():
    assert values_of(b"a\nb\0\0c\r\n\0d", null=True) == [b"a\nb", b"c\r\n", b"d"]
    assert values_of(b"610a\0 62 \n\0", null=True, as_hex=True) == [b"a\n", b"b"]


def test_lines_of_windows_lose_their_cr_and_it_is_said_once(capsys):
    assert values_of(b"a\r\n\r\nb\n", b"c\r\n", b"d\r") == [b"a", b"b", b"c", b"d"]
    assert capsys.readouterr().err.count("the CR is left out") == 1
    assert values_of(b"a\n", b"b\rc\n") == [b"a", b"b\rc"]
    assert values_of(b"610d\r\n", as_hex=True) == [b"a\r"]
    assert capsys.readouterr().err == ""


@given(
    st.lists(
        st.binary(min_size=1, max_size=40).filter(lambda v: b"\n" not in v and v[-1:] != b"\r")
    ),
    st.data(),
)
def test_however_it_is_cut(values, data):
    text = b"".join(value + b"\n" for value in values)
    cut = data.draw(st.integers(0, len(text)))
    assert values_of(text[:cut], text[cut:]) == values
