"""Python sources as the house's rules see them: modules, rooms, and what each one reaches for."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "hyperbloom"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """One use of something from elsewhere: the dotted name, and the line it stands on."""

    name: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Python file. `name` is dotted; a package is named by its folder."""

    name: str
    source: str
    path: str = ""
    is_package: bool = False
    tree: ast.Module = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", ast.parse(self.source, self.path or self.name))

    @property
    def where(self) -> str:
        return self.path or self.name

    @property
    def room(self) -> str:
        """The part of the house: `wire` for hyperbloom.wire.session, `` for the package itself."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @property
    def is_private(self) -> bool:
        return any(part.startswith("_") for part in self.name.split("."))

    @property
    def is_generated(self) -> bool:
        return "_pb2" in self.name

    @cached_property
    def imports(self) -> tuple[Reach, ...]:
        """Every import, wherever it stands: `module` or `module.name`, relative ones resolved."""
        return tuple(self._imports())

    def _imports(self) -> Iterator[Reach]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Reach(name=alias.name, line=node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    yield Reach(name=f"{base}.{alias.name}", line=node.lineno)
            elif isinstance(node, ast.Call):
                name = self._dynamic_import(node)
                if name is not None:
                    yield Reach(name=name, line=node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        up = node.level - 1 if self.is_package else node.level
        base = parts[: len(parts) - up]
        return ".".join([*base, node.module] if node.module else base)

    def _dynamic_import(self, node: ast.Call) -> str | None:
        called = self.dotted(node.func)
        if called not in ("importlib.import_module", "__import__") or not node.args:
            return None
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
        return "(a name computed at run time)"

    @cached_property
    def _names(self) -> dict[str, str]:
        """What each imported local name stands for."""
        names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{base}.{alias.name}"
        return names

    def dotted(self, node: ast.expr) -> str | None:
        """The full name behind `dt.datetime.now` and the like; None for what is no plain name."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    @cached_property
    def reaches(self) -> tuple[Reach, ...]:
        """Every import, and every dotted name and call by name in the code."""
        found = list(self.imports)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                name = self.dotted(node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = self.dotted(node.func)
            else:
                continue
            if name is not None:
                found.append(Reach(name=name, line=node.lineno))
        return tuple(found)


def is_within(name: str, parent: str) -> bool:
    """Whether a dotted name is `parent` or something in it."""
    return name == parent or name.startswith(parent + ".")


def read_module(path: Path, root: Path = ROOT) -> Module:
    relative = path.relative_to(root)
    parts = list(relative.with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    if is_package:
        parts.pop()
    return Module(
        name=".".join(parts),
        source=path.read_text(encoding="utf-8"),
        path=relative.as_posix(),
        is_package=is_package,
    )


def package_modules(root: Path = ROOT) -> list[Module]:
    """The modules of the package, generated ones included."""
    return [read_module(path, root) for path in sorted((root / PACKAGE).rglob("*.py"))]


def project_files(root: Path = ROOT) -> list[Path]:
    """What belongs to the project: tracked, or new and not ignored."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, check=True).stdout
    paths = [root / name for name in listing.decode().split("\0") if name]
    return sorted(path for path in paths if path.is_file())


def project_modules(root: Path = ROOT) -> list[Module]:
    """Every Python file of the project, tests and scripts included."""
    return [read_module(path, root) for path in project_files(root) if is_python(path)]


def is_python(path: Path) -> bool:
    """Whether a file is Python: by its name, or by its first line where it has no suffix."""
    if path.suffix:
        return path.suffix == ".py"
    with open(path, "rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and b"python" in first
