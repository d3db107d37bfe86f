"""What `scripts/mutate` changes and what it leaves alone, and that its verdict is right."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from source_tree import ROOT

SCRIPTS = ROOT / "scripts" / "mutation"


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[tuple[str, str]]]:
    """The changes of a module with this source, each as the text before and after."""
    monkeypatch.syspath_prepend(SCRIPTS)
    from mutants import mutants_of

    def find(source: str, name: str = "module.py") -> set[tuple[str, str]]:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        mutants = mutants_of(path, tmp_path)
        for mutant in mutants:
            compile(mutant.source(), name, "exec")
        assert len({mutant.source() for mutant in mutants}) == len(mutants)
        return {(mutant.before, mutant.after) for mutant in mutants}

    return find


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("x = a < b", {("a < b", "a <= b")}),
        ("x = a < b <= c", {("a < b <= c", "a <= b <= c"), ("a < b <= c", "a < b < c")}),
        ("x = a is not b", {("a is not b", "a is b")}),
        ("x = a not in b", {("a not in b", "a in b")}),
        ("x = a and b or c", {("a and b or c", "(a and b) and c"), ("a and b", "a or b")}),
        ("x = not a", {("not a", "a")}),
        ("x = a + b * c", {("a + b * c", "a - b * c"), ("b * c", "b // c")}),
        ("x += y", {("x += y", "x -= y")}),
        ("x = 7", {("7", "8")}),
        ("x = -1", {("-1", "1"), ("1", "2")}),
        ("x = True", {("True", "False")}),
        ("do(a)", {("do(a)", "pass")}),
        ("x = a if b else c", {("a if b else c", "a if False else c")}),
        ("if a: b = c", {("if a:", "if False:")}),
        ("while a: b = c", {("while a:", "while False:")}),
        ("def f(): return a", {("return a", "return None")}),
    ],
)
def test_what_is_changed(changes, line: str, changed: set[tuple[str, str]]) -> None:
    assert changes(line) == changed


@pytest.mark.parametrize(
    "source",
    [
        '"""A text."""',
        "def f(a: int | None = None) -> int | str: ...",
        "Both = A | B",
        "__all__ = ['a', *more(1)]",
        "assert a < 1, 'no'",
        "x = f'{a + 1}'",
        "x = 'a' + b + 'c'",
        "log.info('{a}', a=1)",
        "self._log.warn('{a}', a=a < 1)",
        "if TYPE_CHECKING:\n    x = 1",
        "@dataclass(frozen=True)\nclass C: pass",
        "class P(Protocol):\n    x = 1",
        "class C:\n    def __repr__(self): return 'C' if self.a else 'B'",
        "@overload\ndef f(): return 1",
        "x = isinstance(a, b | c)",
        "x = zip(a, b, strict=True)",
        "def f():\n    return None",
        "def f():\n    return ()",
    ],
)
def test_what_is_left_alone(changes, source: str) -> None:
    assert changes(source) == set()


def test_numbers_of_limits_are_a_choice_but_what_is_done_with_them_is_not(changes) -> None:
    source = """
        MOST = 1_000
        @dataclass
        class Limits:
            more: int = 3
            def half(self, times=1):
                return self.more // 2
        """
    done = {("self.more // 2", "self.more * 2"), ("2", "3")}
    done.add(("return self.more // 2", "return None"))
    assert changes(source, "limits.py") == done
    assert changes(source) == done | {("1000", "1001"), ("3", "4"), ("1", "2")}


def test_a_file_of_which_no_test_passed_is_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    from calls import Calls

    (tmp_path / "test_a.py").write_text("")
    (tmp_path / "test_b.py").write_text("")
    found = {"test_a.py::test_it": {"seconds": 1.0, "calls": ["f"]}}
    asked: list[list[str]] = []

    def record(files: list[str]) -> dict[str, dict[str, object]]:
        asked.append(files)
        return found

    for _ in range(2):
        Calls(tmp_path, tmp_path / "kept.json").renew(["test_a.py", "test_b.py"], record)
    found["test_b.py::test_it"] = {"seconds": 1.0, "calls": ["g"]}
    calls = Calls(tmp_path, tmp_path / "kept.json")
    for _ in range(2):
        calls.renew(["test_a.py", "test_b.py"], record)
    assert asked == [["test_a.py", "test_b.py"], ["test_b.py"], ["test_b.py"]]
    assert calls.tests_calling(["test_b.py"], ["g"], seconds=9) == [("test_b.py::test_it", 1.0)]


def test_a_room_has_its_folder_of_tests_be_it_a_folder_or_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    from calls import test_files

    for name in ("sketches/test_a", "wire/test_b", "docs/test_c"):
        path = tmp_path / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import hyperbloom.sketches\n")
    expected = ["tests/sketches/test_a.py"], ["tests/wire/test_b.py"]
    assert test_files(tmp_path, "sketches.py") == expected
    assert test_files(tmp_path, "sketches/deeper/module.py") == expected


def test_it_tells_the_changes_that_no_test_notices(tmp_path: Path) -> None:
    package, tests = tmp_path / "sums", tmp_path / "tests"
    package.mkdir()
    tests.mkdir()
    source = "def larger(a, b):\n    return a if a > b else b\n\n\ndef least(a):\n    return a[0]\n"
    (package / "__init__.py").write_text(source)
    (tests / "test_sums.py").write_text(
        "from sums import larger\n\n"
        "def test_one():\n    assert larger(1, 3) == 3\n\n"
        "def test_other():\n    assert larger(3, 1) == 3\n\n"
        "def test_wrong():\n    assert larger(1, 1) == 2\n"
    )
    program = """
        import sys
        from pathlib import Path
        from mutants import mutants_of
        from trials import PackageCopy, record_calls, try_tests

        root = Path(".").resolve()
        copy = PackageCopy(root, "sums")
        recorded = record_calls(copy, ["tests/test_sums.py"])
        print(*sorted(recorded), *recorded["tests/test_sums.py::test_one"]["calls"])
        for mutant in mutants_of(root / "sums" / "__init__.py", root / "sums"):
            with copy.changed(mutant.path, mutant.source()):
                outcome = try_tests(copy, sorted(recorded), limit=60)
            print(mutant.function, mutant.before, outcome.noticed, outcome.by)
        print(try_tests(copy, sorted(recorded), limit=60).noticed)
        copy.remove()
        """
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    one, other = "tests/test_sums.py::test_one", "tests/test_sums.py::test_other"
    assert done.stdout.splitlines() == [
        f"{one} {other} larger",
        "larger a > b False ",
        f"larger a if a > b else b True {other}",
        f"larger return a if a > b else b True {one}",
        "least 0 False ",
        "least return a[0] False ",
        "False",
    ]
    assert (package / "__init__.py").read_text() == source
