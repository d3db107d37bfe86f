"""The documentation: generated parts are fresh, links lead somewhere, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hyperbloom.cli.root import hyperbloom

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# A word that goes on with a slash or a dot is a path, not a command.
COMMAND = re.compile(
    r"(?:^ {4}(?:\$ )?|`)hyperbloom((?: +(?:-c +\S+|[a-z]+(?![\w./-])))+)", re.MULTILINE
)
CITED = re.compile(r"\bdocs/((?:\w+/)?[\w-]+\.md)(?:#([\w-]+))?")
TEST = re.compile(r"`(tests/[\w/]+\.py)?::(\w+)`")
GENERATORS = ("diagrams", "config-docs")


def check(script: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / "scripts" / script), "--check"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("script", GENERATORS)
def test_what_scripts_write_is_fresh(script: str) -> None:
    done = check(script)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("script", "page", "was", "becomes"),
    [
        ("diagrams", "architecture.md", "IDLE --> OPEN_SENT", "IDLE --> SECURE"),
        ("config-docs", "operations.md", "`connections` | `2000`", "`connections` | `3000`"),
        ("config-docs", "operations.md", "| 9 | ", "| 10 | "),
        ("config-docs", "wire.md", "262,144 | Message id", "262,145 | Message id"),
        ("config-docs", "api.md", "256 | Connections over TCP", "257 | Connections over TCP"),
        ("config-docs", "store.md", "10,000 | Every chain", "20,000 | Every chain"),
    ],
)
def test_a_stale_page_is_found(
    tmp_path: Path, script: str, page: str, was: str, becomes: str
) -> None:
    for folder in ("scripts", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "hyperbloom").symlink_to(ROOT / "hyperbloom")
    for name in (script, "generated_blocks.py"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    for path in (ROOT / "docs").glob("*.md"):
        (tmp_path / "docs" / path.name).write_bytes(path.read_bytes())
    copy = tmp_path / "docs" / page
    text = copy.read_text()
    assert was in text
    copy.write_text(text.replace(was, becomes))
    done = check(script, tmp_path)
    assert done.returncode == 1
    assert f"docs/{page}" in done.stderr


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are commonly made."""
    heads = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def broken_citations(code: Path, docs: Path = ROOT / "docs") -> Iterator[str]:
    for cited in CITED.finditer(code.read_text()):
        page, anchor = docs / cited[1], cited[2]
        if not page.exists() or (anchor and anchor not in anchors(page)):
            yield f"{code.name}: {cited[0]}"


def test_pages_that_code_cites_exist() -> None:
    modules = sorted((ROOT / "hyperbloom").rglob("*.py"))
    assert [broken for module in modules for broken in broken_citations(module)] == []


def missing_tests(page: Path, root: Path = ROOT) -> Iterator[str]:
    """Tests that a page names and that are missing: `path::name`, or `::name` of the same path."""
    path = None
    for named, name in TEST.findall(page.read_text()):
        path = root / named if named else path
        if path is None or not path.exists() or f"\ndef {name}(" not in path.read_text():
            yield f"{named}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_pages_name_exist(page: Path) -> None:
    assert list(missing_tests(page)) == []


def known(words: list[str]) -> bool:
    """Whether the words begin with the full name of a command, or of a group that has more."""
    command: click.Command = hyperbloom
    for word in words:
        if not isinstance(command, click.Group):
            return True
        if word not in command.commands:
            return False
        command = command.commands[word]
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_pages_exist(page: Path) -> None:
    found = [
        [word for word in re.sub(r"-c +\S+", "", rest).split() if word]
        for rest in COMMAND.findall(page.read_text())
    ]
    assert [words for words in found if not known(words)] == []
    if page.name == "README.md":
        assert len(found) >= 10


def test_the_checks_of_this_file_bite(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](gone.md) [y](#a-b) [z](#c)\n\n    $ hyperbloom trust shout\n")
    assert list(broken_links(page)) == ["gone.md", "#c"]
    named = tmp_path / "named.md"
    named.write_text("`tests/t.py::test_a`, `::test_b` `tests/gone.py::test_a`")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.py").write_text("\ndef test_a(): ...\n")
    assert list(missing_tests(named, tmp_path)) == ["::test_b", "tests/gone.py::test_a"]
    code = tmp_path / "code.py"
    code.write_text("# docs/page.md#a-b docs/page.md docs/gone.md docs/page.md#c\n")
    broken = ["code.py: docs/gone.md", "code.py: docs/page.md#c"]
    assert list(broken_citations(code, tmp_path)) == broken
    assert [known(rest.split()) for rest in COMMAND.findall(page.read_text())] == [False]
