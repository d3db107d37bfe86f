"""`json`: the texts of an array that a pointer leads to (RFC 6901).

One thing is added to pointers: `*` in the place of an array's index means each of its elements. At
an object it is a name as others are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from hyperbloom.inputs.formats.parsing import LeftOut, Parse, SourceRefused
from hyperbloom.inputs.limits import MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_JSON_PARTS

__all__ = ["texts_at"]

_VALUES_OF_A_SLICE = 10_000
#: The next bracket that is in no text, or the end; from anywhere it matches, so a search is linear.
_BRACKET = re.compile(
    r'[^"\[\]{}]*+(?:"(?:[^"\\]++|\\.)*+"?[^"\[\]{}]*+)*+([\[\]{}]|\Z)', re.DOTALL
)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


_NOTHING = object()


def texts_at(pointer: str) -> Parse:
    """What reads the texts that a pointer leads to; raises `SourceRefused` if it is none."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    if parts[0] or re.search("~(?![01])", pointer):
        raise SourceRefused("the pointer is none; write it as in /data/*/name")
    return lambda chunks, left_out: _texts(_document(chunks), parts[1:], left_out)


def _document(chunks: Iterable[bytes]) -> Any:
    whole = bytearray()
    for chunk in chunks:
        whole += chunk
        if len(whole) > MAX_JSON_BYTES:
            raise SourceRefused(
                f"JSON of more than {MAX_JSON_BYTES} bytes is not read; publish it as lines"
            )
    try:
        text = whole.decode("utf-8-sig")
        del whole
        _check_shape(text)
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SourceRefused(
            "the source is no JSON in UTF-8; look at it with another tool"
        ) from None


def _check_shape(text: str) -> None:
    """Before it is decoded: an empty object of two bytes would take a hundred of memory."""
    depth = opened = 0
    for found in _BRACKET.finditer(text):
        if found[1] not in ("[", "{"):
            depth -= 1
            continue
        depth += 1
        opened += 1
        if depth > MAX_JSON_DEPTH:
            raise SourceRefused(
                f"the JSON is nested in more than {MAX_JSON_DEPTH} levels; publish it flat"
            )
        if opened > MAX_JSON_PARTS:
            raise SourceRefused(
                f"the JSON has more than {MAX_JSON_PARTS} objects and arrays; publish it as lines"
            )


def _texts(document: Any, parts: list[str], left_out: LeftOut) -> Iterator[list[bytes]]:
    texts: list[bytes] = []
    for leaf in _leaves(document, parts, left_out, is_first=True):
        for value in leaf if isinstance(leaf, list) else (leaf,):
            if not isinstance(value, str):
                left_out["no_string"] += 1
                continue
            try:
                text = value.encode("utf-8")
            except UnicodeEncodeError:  # half of a surrogate pair
                left_out["no_text"] += 1
                continue
            if text := text.strip():
                texts.append(text)
            if len(texts) >= _VALUES_OF_A_SLICE:
                yield texts
                texts = []
    yield texts


def _leaves(node: Any, parts: list[str], left_out: LeftOut, *, is_first: bool) -> Iterator[Any]:
    """What `parts` lead to; behind a `*` what leads nowhere is counted, before it is refused."""
    for number, part in enumerate(parts):
        if part == "*" and isinstance(node, list):
            for element in node:
                yield from _leaves(element, parts[number + 1 :], left_out, is_first=False)
            return
        node = _step(node, part)
        if node is _NOTHING:
            if is_first:
                raise SourceRefused("nothing is where the pointer leads to; correct it")
            left_out["nothing_there"] += 1
            return
    if is_first and not isinstance(node, list):
        raise SourceRefused("the pointer leads to no array; correct it")
    yield node


def _step(node: Any, part: str) -> Any:
    if isinstance(node, dict) and part in node:
        return node[part]
    if isinstance(node, list) and _INDEX.fullmatch(part) and int(part) < len(node):
        return node[int(part)]
    return _NOTHING
