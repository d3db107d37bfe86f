"""Each format, on excerpts in the style of what is published, and on any bytes."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.inputs import limits
from hyperbloom.inputs.formats import FORMATS, SourceRefused, parser
from hyperbloom.inputs.formats.parsing import LeftOut, lines_of, sound_values
from hyperbloom.integrations.settings import SOURCE_FORMATS


def read(
    form: str,
    source: bytes | Iterable[bytes],
    *,
    column: str | None = None,
    pointer: str | None = None,
    longest: int = limits.MAX_VALUE_BYTES,
) -> tuple[list[bytes], dict[str, int]]:
    """The values of a source, and what was left out of it."""
    left_out: LeftOut = Counter()
    chunks = [source] if isinstance(source, bytes) else source
    slices = parser(form, column, pointer)(chunks, left_out)
    values = [value for some in sound_values(slices, left_out, longest) for value in some]
    return values, dict(left_out)


def test_the_formats_are_those_of_the_configuration() -> None:
    assert FORMATS == SOURCE_FORMATS
    with pytest.raises(SourceRefused, match="'toml' is no format"):
        parser("toml")


LINES = b"""\xef\xbb\xbf# Addresses that tried to log in
# 2026-11-22 04:00 UTC

192.0.2.7
  198.51.100.0/24\t# a whole office
https://bad.example/#login\r
   # indented
\xff\xfe any bytes \x1b
#
"""

HOSTS = b"""# Title: a list in the style of many\r
127.0.0.1 localhost
127.0.0.1 localhost.localdomain
255.255.255.255 broadcasthost
::1 ip6-localhost ip6-loopback
fe80::1%lo0 localhost
0.0.0.0 0.0.0.0

0.0.0.0 ads.example.com
0.0.0.0 Tracker.Example.NET. # trailing
:: v6.example.org
192.0.2.9 one.example two.example\tthree.example
127.0.0.1\tb\xc3\xbccher.example
ads.example.info
0.0.0.0
0.0.0.0 bad_name.example *.example.com
999.0.0.1 odd.example
"""

ADBLOCK = b"""[Adblock Plus 2.0]
! Title: a list in the style of many
! Expires: 1 day
||ads.example.com^
||Evil.Example.NET^$important
||whole.example^$all,document
||third.example^$third-party
||some.example^$domain=a.example|b.example
||xn--bcher-kva.example^
||b\xc3\xbccher.example^\r
||192.0.2.1^
||*.wild.example^
||path.example/ads/
||open.example
|https://start.example^
@@||good.example^
@@||good.example^$elemhide
example.com##.banner
##.ad
#@#.ad
example.com#?#div:has(.x)
example.com#$#body { margin: 0 }
example.com$$script[tag-content="x"]
# a comment
#another comment
plain.example
plain2.example # with a comment
/banner\\d+/
-ads-300x250.
/ads/*$script
localhost
"""


def test_lines() -> None:
    assert read("lines", LINES) == (
        [
            b"192.0.2.7",
            b"198.51.100.0/24",
            b"https://bad.example/#login",
            b"\xff\xfe any bytes \x1b",
        ],
        {},
    )


def test_hosts() -> None:
    values, left_out = read("hosts", HOSTS)
    assert values == [
        b"ads.example.com", b"tracker.example.net", b"v6.example.org", b"one.example",
        b"two.example", b"three.example", b"xn--bcher-kva.example", b"bad_name.example",
    ]  # fmt: skip
    assert left_out == {
        "reserved": 4,  # localhost, twice; localhost.localdomain; 0.0.0.0
        "of_no_known_kind": 4,  # broadcasthost, ip6-localhost, ip6-loopback, the wildcard
        "no_address": 2,
    }


def test_adblock() -> None:
    values, left_out = read("adblock", ADBLOCK)
    assert values == [
        b"ads.example.com", b"evil.example.net", b"whole.example", b"xn--bcher-kva.example",
        b"xn--bcher-kva.example", b"plain.example", b"plain2.example",
    ]  # fmt: skip
    assert left_out == {
        "option": 2,
        "of_another_kind": 1,
        "pattern": 6,
        "of_no_known_kind": 1,
        "exception": 2,
        "cosmetic": 6,
        "reserved": 1,
    }


CSV = b"""# A list of URLs in the style of many
#
id,when,domain,"what, in words"\r
1,2026-11-22,one.example,"said ""bad"", twice"\r
2,2026-11-22, two.example ,
3,2026-11-22,"three
lines",x

4,2026-11-22
5,2026-11-22,,
"6",2026-11-22,\xff\xfe.example,x
"""


@pytest.mark.parametrize(("column", "first"), [("domain", []), ("3", [b"domain"])])
def test_csv(column: str, first: list[bytes]) -> None:
    assert read("csv", CSV, column=column) == (
        [*first, b"one.example", b"two.example", b"\xff\xfe.example"],
        {"no_column": 1, "line_end_or_nul": 1},
    )


def test_csv_of_one_column_that_is_quoted() -> None:
    assert read("csv", b'"what, in words"\n"a, b"\n', column="what, in words") == ([b"a, b"], {})


@pytest.mark.parametrize("source", [b"", b"a,b\n1,2\n", b"# c\n"])
def test_csv_without_that_column(source: bytes) -> None:
    with pytest.raises(SourceRefused, match="no column of the first line is called 'c'"):
        read("csv", source, column="c")


def test_csv_goes_on_behind_a_line_that_is_none() -> None:
    broken = (
        b'a,"' + b"x" * (limits.MAX_LINE_BYTES - 10) + b"\n" + b"x" * 100 + b"\nb,two\nb\rc,d\n"
    )
    values, left_out = read("csv", b"a,one\n" + broken + b"c,three\n", column="2")
    assert values == [b"one", b"two", b"three"]
    assert left_out == {"no_csv": 2}


DOCUMENT = {
    "names": ["one.example", " two.example ", 3, None, "", ["four"], "a\nb", "\ud800", "\u00fc"],
    "entries": [{"name": "x"}, {"name": ["y", "z"]}, {"other": 1}, {"name": {}}, 5],
    "a/b": {"m~n": ["slash"], "": ["empty"], "*": ["star"]},
    "deep": [["p"], ["q"]],
}


@pytest.mark.parametrize(
    ("pointer", "values", "left_out"),
    [
        (
            "/names",
            [b"one.example", b"two.example", b"\xc3\xbc"],
            {"no_string": 3, "no_text": 1, "line_end_or_nul": 1},
        ),
        ("/entries/*/name", [b"x", b"y", b"z"], {"nothing_there": 2, "no_string": 1}),
        ("/entries/1/name", [b"y", b"z"], {}),
        ("/a~1b/m~0n", [b"slash"], {}),
        ("/a~1b/", [b"empty"], {}),
        ("/a~1b/*", [b"star"], {}),
        ("/deep/*", [b"p", b"q"], {}),
        ("/deep/*/0", [b"p", b"q"], {}),
        ("/deep/*/1", [], {"nothing_there": 2}),
    ],
)
def test_json(pointer: str, values: list[bytes], left_out: dict[str, int]) -> None:
    source = json.dumps(DOCUMENT).encode()
    assert read("json", source, pointer=pointer) == (values, left_out)


@pytest.mark.parametrize(
    ("source", "pointer", "match"),
    [
        (b'["a"]', "/0", "leads to no array"),
        (b'{"a": 1}', "", "leads to no array"),
        (b'{"a": 1}', "/b", "nothing is where the pointer leads to"),
        (b'["a"]', "/01", "nothing is where the pointer leads to"),
        (b'["a"]', "/-", "nothing is where the pointer leads to"),
        (b'["a"]', "/99999999999999999999", "nothing is where the pointer leads to"),
        (b"", "", "no JSON in UTF-8"),
        (b'["a"', "", "no JSON in UTF-8"),
        (b'["a]', "", "no JSON in UTF-8"),
        (b'["\xff"]', "", "no JSON in UTF-8"),
        (b"[" + b"9" * 5_000 + b"]", "", "no JSON in UTF-8"),
        ('["a"]'.encode("utf-16"), "", "no JSON in UTF-8"),
        (b"[]", "a", "the pointer is none"),
        (b"[]", "/~2", "the pointer is none"),
    ],
)
def test_json_that_is_refused(source: bytes, pointer: str, match: str) -> None:
    with pytest.raises(SourceRefused, match=match):
        read("json", source, pointer=pointer)


def test_json_with_a_byte_order_mark_and_brackets_in_texts() -> None:
    brackets = "[" * (2 * limits.MAX_JSON_DEPTH) + '\\"{'
    source = b"\xef\xbb\xbf" + json.dumps([brackets]).encode()
    assert read("json", source) == ([brackets.encode()], {})


class TestLimits:
    """Each limit, and one beyond it."""

    def test_the_length_of_a_line(self) -> None:
        fits, beyond = b"a" * limits.MAX_LINE_BYTES, b"b" * (limits.MAX_LINE_BYTES + 1)
        source = b"\n".join([beyond, fits, beyond, b"c", beyond])
        expected = ([fits, b"c"], {"too_long_line": 3})
        assert read("lines", source, longest=10**6) == expected
        pieces = [source[at : at + 65_536] for at in range(0, len(source), 65_536)]
        assert read("lines", pieces, longest=10**6) == expected

    def test_an_endless_line_is_not_held(self) -> None:
        left_out: LeftOut = Counter()
        piece = b"x" * 1_000_000

        def endless() -> Iterator[bytes]:
            yield from itertools.repeat(piece, 500)
            yield b"\nend"

        assert [line for some in lines_of(endless(), left_out) for line in some] == [b"end"]
        assert left_out == {"too_long_line": 1}

    def test_the_length_of_a_value(self) -> None:
        fits, beyond = b"a" * limits.MAX_VALUE_BYTES, b"b" * (limits.MAX_VALUE_BYTES + 1)
        assert read("lines", fits + b"\n" + beyond) == ([fits], {"too_long": 1})

    def test_the_number_of_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hyperbloom.inputs.formats.parsing.MAX_VALUES", 3)
        assert read("lines", b"a\nb\nc\n#\n")[0] == [b"a", b"b", b"c"]
        with pytest.raises(SourceRefused, match="more than 3 values; divide it"):
            read("lines", b"a\nb\nc\na\n")

    def test_the_length_of_a_row(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hyperbloom.inputs.formats.csv_column.MAX_ROW_BYTES", 12)
        row = b'"a\n","b\n",c'
        assert len(row) == 11
        assert read("csv", row + b"\n" + row, column="3")[0] == [b"c", b"c"]
        with pytest.raises(SourceRefused, match="longer than 12 bytes; look for a quote"):
            read("csv", row + b"cc\n", column="3")

    def test_the_length_of_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hyperbloom.inputs.formats.json_pointer.MAX_JSON_BYTES", 7)
        assert read("json", b'["abc"]')[0] == [b"abc"]
        with pytest.raises(SourceRefused, match="more than 7 bytes"):
            read("json", [b'["abcd"', b"]"])

    def test_the_parts_of_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hyperbloom.inputs.formats.json_pointer.MAX_JSON_PARTS", 3)
        assert read("json", b'[{"[{[{":"a"},"]",{}]') == ([b"]"], {"no_string": 2})
        with pytest.raises(SourceRefused, match="more than 3 objects and arrays"):
            read("json", b"[[],{},[]]")

    def test_json_without_brackets_is_looked_through_once(self) -> None:
        """What is looked through anew from each byte would take hours."""
        for source in (b"1" * 3_000_000, b'"' + b"\\" * 3_000_001, b'"x' * 1_000_000):
            with pytest.raises(SourceRefused, match="no JSON in UTF-8"):
                read("json", source)

    def test_the_depth_of_json(self) -> None:
        deepest = limits.MAX_JSON_DEPTH
        assert read("json", b"[" * deepest + b"]" * deepest) == ([], {"no_string": 1})
        for depth in (deepest + 1, 1_000_000):
            with pytest.raises(SourceRefused, match="more than 100 levels"):
                read("json", b"[" * depth + b"]" * depth)


#: Bytes that mean something to one of the formats.
PIECES = st.sampled_from(
    [
        b"\n", b"\r", b"\r\n", b"\0", b" ", b"\t", b"#", b"##", b"!", b"||", b"^", b"@@", b"$",
        b",", b'"', b"[", b"]", b"{", b"}", b":", b"\\", b"*", b"/", b"0.0.0.0 ", b"::1 ",
        b"example.com", b"a.b", b"localhost", b"important", b"\xef\xbb\xbf", b"\xff",
        b"\xc3\xbc.example", b"name",
    ]
)  # fmt: skip
SOURCES = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=30).map(b"".join))
HOW = [("lines", {}), ("hosts", {}), ("adblock", {}), ("csv", {"column": "1"}),
       ("csv", {"column": "name"}), ("json", {"pointer": "/*"})]  # fmt: skip


@pytest.mark.parametrize(("form", "options"), HOW, ids=lambda it: str(it))
@given(source=SOURCES, data=st.data())
def test_any_bytes_in_slices_of_any_size(
    form: str, options: dict[str, str], source: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(source)), max_size=8)))
    pieces = [source[a:b] for a, b in itertools.pairwise([0, *cuts, len(source)])]
    try:
        whole = read(form, source, **options)
    except SourceRefused as error:
        sentence = str(error)
        assert sentence.isprintable()
        with pytest.raises(SourceRefused):
            read(form, pieces, **options)
        return
    assert read(form, pieces, **options) == whole
    for value in whole[0]:
        assert value
        assert not {10, 13, 0}.intersection(value)
        assert value == value.strip()


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=20))
def test_what_lines_writes_lines_reads(values: list[bytes]) -> None:
    sound = [value for value in (it.strip() for it in values) if value]
    sound = [value for value in sound if not {0, 10, 13, 35}.intersection(value)]
    assert read("lines", b"\n".join(sound)) == (sound, {})
