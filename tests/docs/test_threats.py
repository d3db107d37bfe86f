"""docs/threats.md: every "must not" names a test, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threats.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("| must not", "| ---"))
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_what_must_not_be_names_tests_that_are_there(row: list[str]) -> None:
    tests = row[-1]
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    file = ""
    for name in named:
        path, _, function = name.partition("::")
        file = path or file
        text = (ROOT / file).read_text()
        assert not function or re.search(rf"^    def {function}\(|^def {function}\(", text, re.M)


def test_every_attacker_has_a_table() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.M)[1:]
    assert [section for section in sections if "| must not |" not in section] == sections[-1:]
