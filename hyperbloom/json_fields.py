"""Fields of objects as JSON, and back: what JSON lacks is written as an object of one `$` key.

MessagePack has byte strings (`{"$bytes": hex}`), numbers that are none (`{"$float": "nan"}`, `inf`,
`-inf`), and maps with keys that are no texts (`{"$map": [[key, value], …]}`). A map of one key that
begins with `$` is written as `$map`, too, so that every form has one meaning.
"""

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["from_json_fields", "hash_text", "json_fields", "parse_hash"]

_HASH_DIGITS = 16


def hash_text(number: int) -> str:
    """A hash as people and JSON have it: 16 hex digits of its 8 bytes, as the wire has them."""
    return number.to_bytes(8, "big", signed=True).hex()


def parse_hash(text: str) -> int:
    """The inverse of `hash_text`; ValueError for anything but 16 hex digits."""
    try:
        data = bytes.fromhex(text) if len(text) == _HASH_DIGITS else b""
    except ValueError:
        data = b""
    if len(data) * 2 != _HASH_DIGITS:
        raise ValueError(f"{text!r} is no object's hash: that has {_HASH_DIGITS} hex digits")
    return int.from_bytes(data, "big", signed=True)


def json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as `json` takes them, without NaN."""
    return {name: _json(value) for name, value in fields.items()}


def from_json_fields(form: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `json_fields`; ValueError for a `$` form that is none."""
    return {name: _value(value) for name, value in form.items()}


def _json(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    texts = all(isinstance(key, str) for key in value)
    if not texts or (len(value) == 1 and next(iter(value)).startswith("$")):
        return {"$map": [[_json(key), _json(item)] for key, item in value.items()]}
    return {key: _json(item) for key, item in value.items()}


def _value(form: Any) -> Any:
    if isinstance(form, list):
        return [_value(item) for item in form]
    if not isinstance(form, dict):
        return form
    if len(form) == 1:
        (key, inner), *_ = form.items()
        if key.startswith("$"):
            return _special(key, inner)
    return {key: _value(item) for key, item in form.items()}


def _special(key: str, inner: Any) -> Any:
    try:
        match key, inner:
            case "$bytes", str():
                return bytes.fromhex(inner)
            case "$float", "nan" | "inf" | "-inf":
                return float(inner)
            case "$map", list():
                return {_value(name): _value(item) for name, item in inner}
    except (ValueError, TypeError):
        pass
    raise ValueError(f"{key!r} is no form of a value, or its content is not")
