"""Sizes, names and manners of the code: what a module may be, and what is left open."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from source_tree import PACKAGE, Module

MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 80

_EMPTY_WORDS = ("manager", "managers", "handler", "handlers", "helper", "helpers", "util", "utils")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")

# Written in two halves, so that the rule does not find itself.
_LEFT_OPEN = re.compile(
    "|".join(
        rf"\b{first}{second}\b"
        for first, second in (
            ("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("NotImplemented", "Error"),
            ("pragma: no ", "cover"),
        )
    )
    + r"|type: " + r"ignore\s*$",
    re.MULTILINE,
)  # fmt: skip

_STRUCT_CALLS = ("Struct", "pack", "pack_into", "unpack", "unpack_from", "iter_unpack", "calcsize")
_MESSAGE_MODULES = ("messages", "events")
_MESSAGE_OPTIONS = ("frozen", "slots", "kw_only")


def long_modules(modules: list[Module]) -> list[str]:
    """Modules of more than 700 lines."""
    return [
        f"{module.where}: {lines} lines, at most {MAX_MODULE_LINES} are allowed"
        for module in modules
        if not module.is_generated and (lines := module.source.count("\n")) > MAX_MODULE_LINES
    ]


def long_functions(modules: list[Module]) -> list[str]:
    """Functions of more than 80 lines, from `def` to their last line."""
    breaches = []
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                breaches.append(
                    f"{module.where}:{node.lineno}: {node.name} has {lines} lines, "
                    f"at most {MAX_FUNCTION_LINES} are allowed"
                )
    return breaches


def empty_names(modules: list[Module]) -> list[str]:
    """Modules and classes named manager, handler, helpers or utils."""
    breaches = []
    for module in modules:
        for part in module.name.split("."):
            if _says_nothing(part):
                breaches.append(f"{module.where}: {part!r} does not say what the module is")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and _says_nothing(node.name):
                breaches.append(
                    f"{module.where}:{node.lineno}: {node.name!r} does not say what the class is"
                )
    return breaches


def _says_nothing(name: str) -> bool:
    return any(word.lower() in _EMPTY_WORDS for word in _WORDS.findall(name))


def unlisted_names(modules: list[Module]) -> list[str]:
    """Public modules without `__all__`, and names in `__all__` that the module has not."""
    breaches = []
    for module in modules:
        if module.is_private or _only_docstring(module):
            continue
        listed = _listed(module)
        if listed is None:
            breaches.append(f"{module.where}: a public module lists its names in __all__")
            continue
        missing = sorted(listed - _defined(module))
        if missing:
            breaches.append(f"{module.where}: __all__ names what is not there: {missing}")
    return breaches


def _only_docstring(module: Module) -> bool:
    return all(
        (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
        for node in module.tree.body
    )


def _listed(module: Module) -> set[str] | None:
    for node in module.tree.body:
        names, value = _assigned(node)
        if "__all__" in names and isinstance(value, ast.List | ast.Tuple):
            elements = [each.value for each in value.elts if isinstance(each, ast.Constant)]
            return {each for each in elements if isinstance(each, str)}
    return None


def _assigned(node: ast.stmt) -> tuple[list[str], ast.expr | None]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return [], None
    names = [
        each.id
        for target in targets
        for each in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(each, ast.Name)
    ]
    return names, node.value


def _defined(module: Module) -> set[str]:
    """Names bound at the module's top level, in `if` and `try` too."""
    names = set()
    for node in _top_level(module.tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        else:
            names.update(_assigned(node)[0])
    return names


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _top_level(node.body)
            yield from _top_level(node.orelse)


def left_open(modules: list[Module]) -> list[str]:
    """Marks of unfinished work, and ignored types without the error's name."""
    breaches = []
    for module in modules:
        for match in _LEFT_OPEN.finditer(module.source):
            line = module.source.count("\n", 0, match.start()) + 1
            breaches.append(f"{module.where}:{line}: left open: {match.group().strip()}")
    return breaches


NATIVE_ON_PURPOSE = ("hyperbloom.store.lmdb.datafile",)
"""LMDB writes its own pages in the machine's byte order; who reads them must do so, too."""


def native_structs(modules: list[Module]) -> list[str]:
    """`struct` formats that leave byte order and sizes to the machine."""
    breaches = []
    for module in modules:
        if module.name in NATIVE_ON_PURPOSE:
            continue
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            if module.dotted(node.func) not in {f"struct.{name}" for name in _STRUCT_CALLS}:
                continue
            form = node.args[0]
            if isinstance(form, ast.Constant) and not str(form.value).startswith((">", "<", "!")):
                breaches.append(
                    f"{module.where}:{node.lineno}: struct format {form.value!r} has no byte order"
                )
    return breaches


def loose_messages(modules: list[Module]) -> list[str]:
    """Dataclasses for messages and events that are not frozen, slotted and keyword-only."""
    breaches = []
    for module in modules:
        if module.name.rpartition(".")[2] not in _MESSAGE_MODULES:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for missing in _missing_options(module, node):
                breaches.append(f"{module.where}:{node.lineno}: {node.name} is not {missing}")
    return breaches


#: Exceptions that are no errors told to anybody: whoever raises one catches it a few lines above.
SIGNALS = frozenset({"CloseReason", "Interrupted", "MapFull", "OutputClosed", "OutputLost"})
_BUILTIN_ERRORS = frozenset(
    name
    for name, one in vars(builtins).items()
    if isinstance(one, type) and issubclass(one, BaseException)
)


def loose_errors(modules: list[Module]) -> list[str]:
    """Exceptions that do not derive from HyperbloomError: the API and the CLI know no kind of them.

    An exception of the package stands on another one of it, or on HyperbloomError, beside any
    built-in one.
    """
    breaches = []
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef) or node.name in SIGNALS or not node.bases:
                continue
            names = {(module.dotted(base) or "").rpartition(".")[2] for base in node.bases}
            if names <= _BUILTIN_ERRORS and module.name != "hyperbloom.errors":
                breaches.append(f"{module.where}:{node.lineno}: {node.name} is no HyperbloomError")
    return breaches


def _missing_options(module: Module, node: ast.ClassDef) -> list[str]:
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.dotted(call) != "dataclasses.dataclass":
            continue
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        given = {
            keyword.arg
            for keyword in keywords
            if isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        }
        return [option for option in _MESSAGE_OPTIONS if option not in given]
    return []


def in_package(modules: list[Module]) -> list[Module]:
    """Those of the modules that are installed."""
    return [module for module in modules if module.name.split(".")[0] == PACKAGE]
