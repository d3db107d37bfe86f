"""The pool of a running node for programs without Twisted: persisted classes over its socket.

    with RemotePool(Path("demo/control.sock"), [Person]) as pool:
        ada = pool.add(Person("Ada", 36))
        ada.age = 37                        # on disk, and on its way, when this returns
        for person in pool.find(Person, name="Ada"):
            ...

Every call waits for the node. Instances follow what others do while `follow` runs. A pool belongs
to one thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hyperbloom.client.client import Client
from hyperbloom.client.requests import Closing, NodeTimeout
from hyperbloom.json_fields import from_json_fields, hash_text, json_fields
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.classes.types import ObjectType, Types, bind, binding_of, declaration_of
from hyperbloom.objects.wire.errors import ObjectError, ObjectGone

if TYPE_CHECKING:
    from hyperbloom.api.schemas.objects import ObjectForm

__all__ = ["RemotePool", "RemoteRecord"]

T = TypeVar("T")
Callback = Callable[[Any], None]


class RemoteRecord:
    """An object of no class that the program knows: its hash (16 hex digits) and its fields."""

    def __init__(self, form: ObjectForm) -> None:
        self.hash = form["hash"]
        self.type_name = form["type"]
        self.fields: Mapping[str, Any] = from_json_fields(form["fields"])

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


class _Bound:
    """An instance's version, as the node knows it; None once it is removed."""

    __slots__ = ("__weakref__", "instance", "kind", "number", "pool")

    def __init__(self, pool: RemotePool, kind: ObjectType, instance: Any, number: str) -> None:
        self.pool = pool
        self.kind = kind
        self.instance = weakref.ref(instance)
        self.number: str | None = number

    def set_field(self, instance: Any, name: str, value: Any) -> None:
        self.pool.set(instance, **{name: value})


class RemotePool(Closing):
    """The pool behind a control socket.

    classes: the persisted classes the program knows. rule: the node's `[objects] hash_rule`.
    timeout: seconds to wait for each answer. Methods raise what `Client` does: `Problem` (CONFLICT
    for a clash, UNKNOWN_OBJECT for what is there no more), `NodeUnreachable`, `NodeTimeout`.
    """

    def __init__(
        self,
        path: Path,
        classes: Iterable[type] = (),
        *,
        rule: HashRule = HashRule.TEXT,
        timeout: float | None = 30.0,
    ) -> None:
        self._client = Client(path, timeout=timeout)
        self._events = Client(path, timeout=timeout)
        self._types = Types(classes, rule=rule)
        self._bound: weakref.WeakValueDictionary[str, _Bound] = weakref.WeakValueDictionary()
        self._callbacks: list[tuple[str, ObjectType | None, Callback]] = []

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._events.close()

    def declare(self, *classes: type) -> None:
        """Have the node know classes that Java programs have as well, by their annotations.

        The node then gives their objects the right hashes where none is told, and tells them to
        the JVM implementation. TypeError for a class that Java has no declaration for.
        """
        for declaration in [declaration_of(cls) for cls in classes]:
            self._client.declare_type(declaration.name, declaration.pairs())

    def add(self, instance: T) -> T:
        """Add an instance of a persisted class; from then on setting an attribute is a change."""
        kind = self._types.register(type(instance))
        bound: _Bound | None = binding_of(instance)
        if bound is not None and bound.number is not None:
            raise ObjectError("this instance is in a pool already")
        fields = kind.fields_of(instance)
        number = hash_text(kind.hash_of(fields, self._types.rule))
        self._client.add_object(json_fields(fields), type_name=kind.name, number=number)
        self._bind(instance, kind, number)
        return instance

    def set(self, instance: Any, **fields: Any) -> None:
        """Set attributes in one change; they stay as they were if the node refuses it."""
        bound = self._bound_of(instance)
        whole = {**bound.kind.fields_of(instance), **fields}
        changed = hash_text(bound.kind.hash_of(whole, self._types.rule))
        old = self._number(bound)
        form = self._client.change_object(old, json_fields(fields), changed=changed)
        self._show(bound, form)

    def remove(self, instance: Any) -> None:
        """Remove an instance's object; what is set on the instance then raises `ObjectGone`."""
        bound = self._bound_of(instance)
        self._client.remove_object(self._number(bound))
        self._unbind(bound)

    def find(self, cls: type[T], **fields: Any) -> list[T]:
        """All objects of a class whose fields have these values."""
        kind = self._types.register(cls)
        return [
            found
            for found in self
            if type(found) is kind.cls
            and all(getattr(found, name) == value for name, value in fields.items())
        ]

    def __iter__(self) -> Iterator[Any]:
        """Every object: instances of the known classes, RemoteRecords of others."""
        for form in self._client.objects():
            yield self._instance(form)

    def on_created(self, callback: Callback, cls: type | None = None) -> None:
        """Call with each object that comes to be, of a class or of any, while `follow` runs."""
        self._on("created", callback, cls)

    def on_changed(self, callback: Callback, cls: type | None = None) -> None:
        """Call with each object that has changed."""
        self._on("changed", callback, cls)

    def on_removed(self, callback: Callback, cls: type | None = None) -> None:
        """Call with what each removed object was."""
        self._on("removed", callback, cls)

    def follow(self, *, seconds: float | None = None, most: int | None = None) -> int:
        """Keep instances up to date and call back, for a time or a number of events.

        Returns how many events came; for ever without either.
        """
        count = 0
        try:
            for event in self._events.watch_objects(seconds=seconds):
                if event is None:
                    continue
                self._follow(event.kind, event.before, event.after)
                count += 1
                if count == most:
                    break
        except NodeTimeout:
            if seconds is None:
                raise
        self._events.close()
        return count

    def _follow(self, kind: str, before: ObjectForm | None, after: ObjectForm | None) -> None:
        bound = None if before is None else self._bound.get(before["hash"])
        if bound is not None and after is not None:
            self._show(bound, after)
        elif bound is not None and kind == "removed":
            self._unbind(bound)
        form = after if after is not None else before
        if form is None:
            return
        told = self._instance(form) if kind != "removed" else self._plain(form)
        for wanted, of, callback in self._callbacks:
            if wanted == kind and (of is None or type(told) is of.cls):
                callback(told)

    def _on(self, kind: str, callback: Callback, cls: type | None) -> None:
        of = None if cls is None else self._types.register(cls)
        self._callbacks.append((kind, of, callback))

    def _kind(self, form: ObjectForm, fields: Mapping[str, Any]) -> ObjectType | None:
        return self._types.type_of(form["type"], fields)

    def _plain(self, form: ObjectForm) -> Any:
        fields = from_json_fields(form["fields"])
        kind = self._kind(form, fields)
        return RemoteRecord(form) if kind is None else kind.make(fields)

    def _instance(self, form: ObjectForm) -> Any:
        bound = self._bound.get(form["hash"])
        known = None if bound is None else bound.instance()
        if known is not None:
            return known
        made = self._plain(form)
        if not isinstance(made, RemoteRecord):
            self._bind(made, self._types.register(type(made)), form["hash"])
        return made

    def _bind(self, instance: Any, kind: ObjectType, number: str) -> None:
        bound = _Bound(self, kind, instance, number)
        bind(instance, bound)
        self._bound[number] = bound

    def _unbind(self, bound: _Bound) -> None:
        if bound.number is not None:
            self._bound.pop(bound.number, None)
        bound.number = None

    def _show(self, bound: _Bound, form: ObjectForm) -> None:
        if bound.number is not None:
            self._bound.pop(bound.number, None)
        bound.number = form["hash"]
        self._bound[form["hash"]] = bound
        instance = bound.instance()
        if instance is not None:
            for name, value in from_json_fields(form["fields"]).items():
                if name in bound.kind.fields:
                    object.__setattr__(instance, name, value)

    @staticmethod
    def _bound_of(instance: Any) -> _Bound:
        bound: _Bound | None = binding_of(instance)
        if bound is None:
            raise ObjectError("the object is in no pool; add it first")
        return bound

    @staticmethod
    def _number(bound: _Bound) -> str:
        if bound.number is None:
            raise ObjectGone(
                "the object is in the pool no more; add the instance again to have one"
            )
        return bound.number
