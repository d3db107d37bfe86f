"""What may be changed in a module so that a test should notice: one small change a mutant.

Changed are comparisons, `and` and `or`, `not`, signs, arithmetic, numbers (one more), True and
False; a call made for its effect is dropped, a branch or a loop is never taken, None is returned.

Left out is what no test should hold: docstrings, annotations, decorators, texts, log messages,
assertions, `__all__`, what `repr` shows, what only a type checker reads, generated modules, and the
numbers chosen in `limits.py` and `settings.py`, which tests call by their names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Mutant", "imports_twisted", "mutants_of"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_CHOSEN_NUMBERS = ("limits.py", "settings.py")
_LISTS_OF_NAMES = ("__all__", "__slots__", "__match_args__")
_SHOWN = ("__repr__", "__str__")
_LOGS = ("log", "_log", "logger", "_logger")
_OF_NO_EFFECT = ("strict", "usedforsecurity")
_DECLARED_ONLY = ("overload", "abstractmethod")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one module. `path` is relative to the package; `function` is qualified."""

    path: str
    function: str
    line: int
    before: str
    after: str
    _tree: ast.Module = field(repr=False, compare=False)
    _parent: ast.AST = field(repr=False, compare=False)
    _field: str = field(repr=False, compare=False)
    _index: int | None = field(repr=False, compare=False)
    _new: ast.AST = field(repr=False, compare=False)

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" + (f" in {self.function}" if self.function else "")
        return f"{place}: `{self.before}` → `{self.after}`"

    def source(self) -> str:
        """The module with the change."""
        old = self._exchange(self._new)
        try:
            return ast.unparse(ast.fix_missing_locations(self._tree)) + "\n"
        finally:
            self._exchange(old)

    def _exchange(self, new: ast.AST) -> ast.AST:
        place = getattr(self._parent, self._field)
        if self._index is None:
            setattr(self._parent, self._field, new)
            return place
        old, place[self._index] = place[self._index], new
        return old


def mutants_of(path: Path, package: Path) -> list[Mutant]:
    """Every mutant of the module at `path`, in the order of its lines."""
    if any(part.startswith("_pb2") for part in path.parts):
        return []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sorted(
        _Finder(path.relative_to(package).as_posix(), tree).find(),
        key=lambda mutant: (mutant.line, mutant.before, mutant.after),
    )


def imports_twisted(path: Path) -> bool:
    """Whether a module works with Twisted itself, so that it moves bytes or sets timers."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        if any(name.partition(".")[0] == "twisted" for name in names):
            return True
    return False


class _Finder:
    def __init__(self, path: str, tree: ast.Module) -> None:
        self._path = path
        self._tree = tree
        self._constants_are_chosen = path.rpartition("/")[2] in _CHOSEN_NUMBERS

    def find(self) -> Iterator[Mutant]:
        yield from self._below(self._tree, ())

    def _below(self, parent: ast.AST, names: tuple[str, ...]) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(parent):
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or _is_pointless(child, parent, name):
                    continue
                is_default = isinstance(parent, _FUNCTIONS) and name == "args"
                if (is_default or not self._in_function(names)) and self._is_declared(child):
                    continue
                for new in _changes(child):
                    yield Mutant(
                        path=self._path,
                        function=".".join(names).removesuffix(".<locals>"),
                        line=getattr(child, "lineno", 0),
                        before=_text(child),
                        after=_text(new),
                        _tree=self._tree,
                        _parent=parent,
                        _field=name,
                        _index=index if isinstance(value, list) else None,
                        _new=new,
                    )
                yield from self._below(child, self._entered(child, names))

    @staticmethod
    def _entered(node: ast.AST, names: tuple[str, ...]) -> tuple[str, ...]:
        """The qualified name as the code object has it."""
        if isinstance(node, _FUNCTIONS):
            return (*names, node.name, "<locals>")
        return (*names, node.name) if isinstance(node, ast.ClassDef) else names

    @staticmethod
    def _in_function(names: tuple[str, ...]) -> bool:
        return "<locals>" in names

    def _is_declared(self, node: ast.AST) -> bool:
        """Unions of types, and numbers that are a choice, outside functions."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return True
        return self._constants_are_chosen and not isinstance(node, (ast.ClassDef, *_FUNCTIONS))


def _is_pointless(node: ast.AST, parent: ast.AST, name: str) -> bool:
    """Whether nothing below `node` should be changed."""
    if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(
        parent, ast.Call
    ):
        return True
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_log(node.value)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(each, ast.Name) and each.id in _LISTS_OF_NAMES for each in targets)
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, _FUNCTIONS):
        return node.name in _SHOWN or any(
            _last_name(each) in _DECLARED_ONLY for each in node.decorator_list
        )
    if isinstance(node, ast.ClassDef):
        return any(_last_name(base) == "Protocol" for base in node.bases)
    if isinstance(node, ast.keyword):
        return node.arg in _OF_NO_EFFECT
    if isinstance(parent, ast.Call) and _last_name(parent.func) in ("isinstance", "cast"):
        return name == "args" and node is parent.args[-1 if len(parent.args) == 2 else 0]
    return False


def _is_log(call: ast.expr) -> bool:
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and _last_name(call.func.value) in _LOGS
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of `node`."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            ops = list(node.ops)
            ops[index] = _COMPARISONS[type(operator)]()
            yield ast.Compare(left=node.left, ops=ops, comparators=node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(op=other, values=node.values)
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not | ast.USub):
            yield node.operand
    elif isinstance(node, ast.BinOp):
        if type(node.op) in _ARITHMETIC and not (_is_text(node.left) or _is_text(node.right)):
            operator = _ARITHMETIC[type(node.op)]()
            yield ast.BinOp(left=node.left, op=operator, right=node.right)
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in _ARITHMETIC:
            operator = _ARITHMETIC[type(node.op)]()
            yield ast.AugAssign(target=node.target, op=operator, value=node.value)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Call):
            yield ast.Pass()
    elif isinstance(node, ast.If):
        yield ast.If(test=ast.Constant(False), body=node.body, orelse=node.orelse)
    elif isinstance(node, ast.While):
        yield ast.While(test=ast.Constant(False), body=node.body, orelse=node.orelse)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(test=ast.Constant(False), body=node.body, orelse=node.orelse)
    elif isinstance(node, ast.Return) and not _is_nothing(node.value):
        yield ast.Return(value=ast.Constant(None))


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_nothing(value: ast.expr | None) -> bool:
    """Whether a caller could hardly tell a returned value from None."""
    if value is None:
        return True
    if isinstance(value, ast.Constant):
        return not value.value
    return isinstance(value, ast.Tuple | ast.List) and not value.elts


def _text(node: ast.AST) -> str:
    """A node on one line, without what stands below an `if` or a `while`."""
    if isinstance(node, ast.If | ast.While):
        word = "if" if isinstance(node, ast.If) else "while"
        return f"{word} {ast.unparse(node.test)}:"
    return " ".join(ast.unparse(node).split())
