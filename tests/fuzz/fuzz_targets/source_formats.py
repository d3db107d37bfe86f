"""Lists that others publish: each format, in slices as they come from a file or a server."""

from __future__ import annotations

from collections import Counter

from choices import Choices

from hyperbloom.inputs.formats import SourceRefused, parser
from hyperbloom.inputs.formats.parsing import LeftOut, Parse, sound_values

MAX_BYTES = 4_096
RUNS = 40

_LONGEST = 64
_PARSERS: tuple[Parse, ...] = (
    parser("lines"),
    parser("hosts"),
    parser("adblock"),
    parser("csv", column="2"),
    parser("csv", column="name"),
    parser("json", pointer=""),
    parser("json", pointer="/a/*/b"),
)


def fuzz(data: bytes) -> bool:
    """One of the formats, with any bytes; whether a value came out."""
    choices = Choices(data)
    parse = choices.one_of(_PARSERS)
    width = 1 + choices.number()
    source = choices.rest()
    pieces = [source[at : at + width] for at in range(0, len(source), width)]
    try:
        whole = _values(parse, [source])
    except SourceRefused:
        return False
    assert _values(parse, pieces) == whole
    return bool(whole[0])


def _values(parse: Parse, chunks: list[bytes]) -> tuple[list[bytes], LeftOut]:
    left_out: LeftOut = Counter()
    values: list[bytes] = []
    for some in sound_values(parse(chunks, left_out), left_out, _LONGEST):
        assert some
        for value in some:
            assert 0 < len(value) <= _LONGEST
            assert not {0, 10, 13}.intersection(value)
        values += some
    return values, left_out


def seeds() -> dict[str, bytes]:
    """A short list in each format."""
    rows = b'id,name,"in words"\r\n1,one.example,"a ""b"" c"\r\n2,"two\n.example",\r\n'
    lists = {
        "lines": b"# names\none.example\r\n  two.example # second\n\n",
        "hosts": b"127.0.0.1 localhost\n0.0.0.0 a.example B.example. # c\n::1 b\xc3\xbc.example\n",
        "adblock": b"[Adblock]\n! t\n||a.example^\n||b.example^$important\n@@||c.example^\n##.x\n"
        b"d.example\n||e.example^$domain=f.example\n",
        "csv_number": rows,
        "csv_name": b"# c\n" + rows.replace(b"id,name", b"name,id"),
        "json": b'["a.example", " b\\u00fc.example", 1, null, {"x": []}]',
        "json_pointer": b'{"a": [{"b": "a.example"}, {"b": ["c", "d"]}, {}, 5]}',
    }
    return {name: bytes([number, 10]) + text for number, (name, text) in enumerate(lists.items())}
