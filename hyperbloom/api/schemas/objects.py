"""What the API takes and answers about the object pool."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

__all__ = [
    "Hash",
    "NewObjectForm",
    "NewTypeForm",
    "ObjectChangeForm",
    "ObjectForm",
    "ObjectsForm",
    "TypeFieldForm",
    "TypeForm",
    "TypesForm",
]

Hash: TypeAlias = Annotated[
    str, ("pattern", "^[0-9a-fA-F]{16}$"), ("description", "an object's hash: 16 hex digits")
]


class NewObjectForm(TypedDict):
    """An object to add; the hash is computed where it is left out."""

    fields: dict[str, Any]
    type: NotRequired[str | None]
    hash: NotRequired[Hash | None]


class ObjectChangeForm(TypedDict):
    """Fields to change, and the hash afterwards, computed where it is left out."""

    fields: dict[str, Any]
    hash: NotRequired[Hash | None]


class ObjectForm(TypedDict):
    """An object. Times are seconds since 1970: when this node learned of it, and of its version."""

    hash: str
    type: str | None
    fields: dict[str, Any]
    created: float
    changed: float


class ObjectsForm(TypedDict):
    """Objects in the order of their hashes; `next` is the hash to go on behind, null at the end."""

    objects: list[ObjectForm]
    next: Hash | None


class TypeFieldForm(TypedDict):
    """A field: its name, and its type by its name in Java."""

    name: str
    type: str


class NewTypeForm(TypedDict):
    """A type to declare: a class's simple name, and its fields as `Objects.hash` takes them."""

    name: str
    fields: list[TypeFieldForm]


class TypeForm(NewTypeForm):
    """A declared type; `configured`: it stands in the configuration, and is changed there."""

    configured: bool


class TypesForm(TypedDict):
    """The declared types, by name."""

    types: list[TypeForm]
