"""What sets may be called: each name makes a file of its own, and none leaves its place in one."""

from __future__ import annotations

import pytest
from output_tools import OutputTools

from hyperbloom.outputs import FORMATS, Allowed, Counts, Rendering

LONGEST = "Of_24_signs_which_is_all"
VALUES = [b"192.0.2.7", b"198.51.100.0/24", b"2001:db8::7"]


def file(form: str, name: str, values: list[bytes]) -> bytes:
    rendering = Rendering(allowed=Allowed(), serial=7, set_name=name)
    return b"".join(FORMATS[form].file([values], rendering, Counts()))


@pytest.mark.parametrize("name", ["a", "A1", "ours", LONGEST])
@pytest.mark.parametrize("form", ["nftables", "ipset"])
def test_a_name_stands_where_the_usual_one_does(form: str, name: str) -> None:
    usual = file(form, "hyperbloom", VALUES)
    assert file(form, name, VALUES) == usual.replace(b"hyperbloom", name.encode())


@pytest.mark.parametrize(
    "name",
    ["", "1", "_", "4a", "a b", "a;b", "a-b", "a.b", "a\n", "a{", 'a"', "ä", "ａ", "a" * 25, "a²"],
)
def test_what_is_no_name_makes_no_file(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a set: 1 to 24 letters, digits and '_'"):
        Rendering(allowed=Allowed(), serial=7, set_name=name)


def test_nft_keeps_two_tables(tools: OutputTools) -> None:
    tools.needs("--net")
    files = file("nftables", LONGEST, VALUES) + file("nftables", "theirs", VALUES[:1])
    listed = tools.shell("--net", script="nft -f -; nft list tables", stdin=files)
    assert listed.decode().split() == ["table", "inet", LONGEST, "table", "inet", "theirs"]


def test_ipset_keeps_the_sets_of_two(tools: OutputTools) -> None:
    tools.needs("--net", "ipset create a hash:net")
    files = file("ipset", LONGEST, VALUES) + file("ipset", "theirs", VALUES[:1])
    listed = tools.shell("--net", script="ipset restore; ipset list -n", stdin=files)
    assert set(listed.decode().split()) == {
        name + version for name in (LONGEST, "theirs") for version in "46"
    }
