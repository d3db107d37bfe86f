"""What a client asks about the object pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from hyperbloom.client.requests import NodeTimeout, ObjectEvent, with_query
from hyperbloom.client.transport import Transport

if TYPE_CHECKING:
    from hyperbloom.api.schemas.objects import ObjectForm, TypeForm

__all__ = ["ObjectRequests"]


def _object_path(number: str) -> str:
    return f"/v1/objects/{quote(number, safe='')}"


class ObjectRequests(Transport):
    """Objects of the pool, and the types that are declared in it."""

    def objects_page(
        self, *, after: str | None = None, limit: int | None = None
    ) -> tuple[list[ObjectForm], str | None]:
        """Objects in the order of their hashes, and the hash to go on after (None: no more)."""
        page = self.ask("GET", with_query("/v1/objects", after=after, limit=limit))
        return page["objects"], page["next"]

    def objects(self) -> Iterator[ObjectForm]:
        """Every object of the pool, page by page."""
        after: str | None = None
        while True:
            page, after = self.objects_page(after=after)
            yield from page
            if after is None:
                return

    def object(self, number: str) -> ObjectForm:
        """One object by its hash (16 hex digits)."""
        return cast("ObjectForm", self.ask("GET", _object_path(number)))

    def add_object(
        self, fields: Mapping[str, Any], *, type_name: str | None = None, number: str | None = None
    ) -> ObjectForm:
        """Adds an object; returns once it is on disk. `fields` as JSON."""
        body = {"fields": dict(fields), "type": type_name, "hash": number}
        return cast("ObjectForm", self.ask("POST", "/v1/objects", body))

    def change_object(
        self, number: str, fields: Mapping[str, Any], *, changed: str | None = None
    ) -> ObjectForm:
        """Changes fields of an object; its hash is another one then."""
        body = {"fields": dict(fields), "hash": changed}
        return cast("ObjectForm", self.ask("PATCH", _object_path(number), body))

    def remove_object(self, number: str) -> None:
        """Removes an object."""
        self.ask("DELETE", _object_path(number))

    def object_types(self) -> list[TypeForm]:
        """The declared types, by name."""
        return cast("list[TypeForm]", self.ask("GET", "/v1/objects/types")["types"])

    def declare_type(self, name: str, fields: Mapping[str, str]) -> TypeForm:
        """Declares a class of a Java program, or declares it anew; returns once it is on disk.

        `fields`: names and types (`int`, `String`, …), in the order `Objects.hash` has there.
        """
        listed = [{"name": field, "type": kind} for field, kind in fields.items()]
        body = {"name": name, "fields": listed}
        return cast("TypeForm", self.ask("POST", "/v1/objects/types", body))

    def undeclare_type(self, name: str) -> None:
        """Removes a declared type; its objects stay as they are."""
        self.ask("DELETE", f"/v1/objects/types/{quote(name, safe='')}")

    def watch_objects(self, *, seconds: float | None = None) -> Iterator[ObjectEvent | None]:
        """What happens to objects; the first item is None: from then on nothing is missed.

        Ends with `NodeTimeout` after `seconds`, with `NodeUnreachable` when the node stops, with
        `Problem` when this reader falls behind.
        """
        count = -1  # the first says that the watch has begun
        for event in self.events("GET", "/v1/objects/watch", None, seconds):
            count += 1
            if event is None:
                yield None
            else:
                kind, form = event
                yield ObjectEvent(kind, form["before"], form["after"])
        came = f"{count:,} changes and no more" if count else "nothing"
        raise NodeTimeout(f"{came} happened within {seconds:g} s")
