"""Bodies of requests, held against the types of their forms (`hyperbloom.api.schemas`).

The same types are described to the world by `json_schema`, so that what is described is what is
checked.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hyperbloom.api.problems import Problem, bad_request
from hyperbloom.api.schemas.scalars import DURATION, HEX_PATTERN, VALUE_PATTERN
from hyperbloom.units import parse_duration

__all__ = ["check"]

Form = TypeVar("Form")

#: Returns what was found, in the form's type; raises `Problem` for a name and what it must be.
_Check = Callable[[Any, str], Any]

_NOUNS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def check(body: Mapping[str, Any], form: type[Form]) -> Form:
    """The body, which has the members of `form`, each of its type and within its bounds.

    A number is what it amounts to, as JSON Schema has it (2020-12, 4.2.3): 1 passes for a float,
    and 1.0 for an integer. Raises `Problem` BAD_REQUEST with one sentence that names the member.
    """
    return cast("Form", _object(cast("Any", form))(body, "the body"))


@cache
def _object(form: Any) -> _Check:
    """The check of an object with the members of a `TypedDict`, and no others."""
    hints = get_type_hints(form, include_extras=True)
    members = {name: _checked(hint) for name, hint in hints.items()}
    nouns = {
        name: _noun(hint) for name, hint in hints.items() if get_origin(hint) is not NotRequired
    }
    known = f"known are {', '.join(members)}" if members else "nothing is"

    def check_object(found: Any, name: str) -> dict[str, Any]:
        if type(found) is not dict:
            raise bad_request(f"{name} must be an object")
        for member in found:
            if member not in members:
                raise bad_request(f"{member!r} is not known here; {known}")
        for member, noun in nouns.items():
            if member not in found:
                raise bad_request(f"{member} is missing: it must be {noun}")
        return {member: members[member](value, member) for member, value in found.items()}

    return check_object


def _checked(kind: Any) -> _Check:
    """The check of any type that a form may name."""
    if kind is Any:
        return lambda found, name: found
    if is_typeddict(kind):
        return _object(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is NotRequired:
        return _checked(arguments[0])
    if origin is Annotated:
        return _bounded(arguments[0], dict(arguments[1:]))
    if origin in (Union, types.UnionType):
        return _one_of([_checked(one) for one in arguments])
    if origin is Literal:
        return _word(arguments)
    if origin is list:
        return _list(_checked(arguments[0]))
    return _plain(dict if origin is dict else kind)


def _noun(kind: Any) -> str:
    """What a value of a type is called."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return dict(arguments[1:]).get("description") or _noun(arguments[0])
    if origin in (Union, types.UnionType):
        return _noun(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(arguments)}"
    return _NOUNS.get(origin or kind, "an object")


def _plain(kind: Any) -> _Check:
    noun = _NOUNS.get(kind, "null")

    def check_plain(found: Any, name: str) -> Any:
        if kind is float and type(found) is int:
            return float(found)
        if kind is int and type(found) is float and found.is_integer():
            return int(found)
        if type(found) is not kind:
            raise bad_request(f"{name} must be {noun}")
        return found

    return check_plain


def _word(words: tuple[str, ...]) -> _Check:
    def check_word(found: Any, name: str) -> Any:
        if found not in words:
            raise bad_request(f"{name} must be one of {', '.join(words)}")
        return found

    return check_word


def _list(item: _Check) -> _Check:
    def check_list(found: Any, name: str) -> list[Any]:
        if type(found) is not list:
            raise bad_request(f"{name} must be a list")
        each = f"each of {name}"
        return [item(one, each) for one in found]

    return check_list


def _one_of(checks: list[_Check]) -> _Check:
    """Of several types the first that fits; what is wrong is said for the first of them."""

    def check_one(found: Any, name: str) -> Any:
        first: Problem | None = None
        for one in checks:
            try:
                return one(found, name)
            except Problem as problem:
                first = first or problem
        raise cast("Problem", first)

    return check_one


def _bounded(kind: Any, bounds: Mapping[str, Any]) -> _Check:
    """The check of a type and of what stands beside it."""
    if "pattern" in bounds:
        return _text(bounds["pattern"], bounds["description"])
    if get_origin(kind) is list:
        return _sized(_checked(kind), bounds)
    return _number(_checked(kind), bounds)


def _text(pattern: str, noun: str) -> _Check:
    fits = _HEX.get(pattern) or re.compile(pattern).match

    def check_text(found: Any, name: str) -> Any:
        try:
            if type(found) is str and fits(found):
                return found
        except ValueError:
            pass
        raise bad_request(f"{name} must be {noun}")

    return check_text


def _is_hex(text: str) -> bool:
    bytes.fromhex(text)
    return True


#: Of long texts hundreds of times faster than a regular expression; what is no hex raises.
_HEX: Mapping[str, Callable[[str], object]] = {
    HEX_PATTERN: _is_hex,
    VALUE_PATTERN: bytes.fromhex,
}


def _sized(items: _Check, bounds: Mapping[str, Any]) -> _Check:
    least, most = bounds.get("minItems", 0), bounds.get("maxItems")
    noun = bounds.get("description")

    def check_sized(found: Any, name: str) -> Any:
        if type(found) is list:
            if noun and most is not None and not least <= len(found) <= most:
                raise bad_request(f"{name} must be {noun}")
            if len(found) < least:
                raise bad_request(f"{name} must hold at least one")
            if most is not None and len(found) > most:
                raise bad_request(f"{name} may hold {most:,}, these are {len(found):,}; send fewer")
        elif noun:
            raise bad_request(f"{name} must be {noun}")
        return items(found, name)

    return check_sized


def _number(number: _Check, bounds: Mapping[str, Any]) -> _Check:
    least, most = bounds.get("minimum"), bounds.get("maximum")
    above = bounds.get("exclusiveMinimum")
    limits = [f"at least {least:,}"] if least is not None else []
    limits += [f"above {above:,}"] if above is not None else []
    limits += [f"at most {most:,}"] if most is not None else []
    noun = bounds.get("description") or " and ".join(limits)

    def check_number(found: Any, name: str) -> Any:
        if type(found) is str and DURATION[0] in bounds:
            try:
                found = parse_duration(found)
            except ValueError as error:
                raise bad_request(f"{name}: {error}") from None
        found = number(found, name)
        if (
            (least is not None and not found >= least)
            or (above is not None and not found > above)
            or (most is not None and not found <= most)
        ):
            raise bad_request(f"{name} must be {noun}")
        return found

    return check_number
