"""Commands about the object pool: object list, show, add, set, remove, watch; types, declare."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Group, pass_app
from hyperbloom.cli.parameters import WholeNumber
from hyperbloom.cli.tables import Name

if TYPE_CHECKING:
    from hyperbloom.api.schemas.objects import ObjectForm, TypeForm
    from hyperbloom.client.client import ObjectEvent

__all__ = ["object_"]


class ObjectHash(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An object's hash: 16 hex digits."""

    name = "hash"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        from hyperbloom.json_fields import parse_hash

        try:
            parse_hash(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value).lower()


def _value(text: str) -> Any:
    """A value as it was typed: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(word: str) -> Any:
    """JSON has no NaN and no Infinity; they are texts."""
    raise ValueError(word)


def _fields(given: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{item!r} is no field; write NAME=VALUE")
        if name in fields:
            raise click.UsageError(f"the field {name} is there twice")
        fields[name] = _value(text)
    return fields


def _summary(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())


def _show(app: App, form: ObjectForm) -> None:
    if app.out.as_json:
        app.out.json(form)
        return
    app.out.facts(
        [
            ("hash", form["hash"]),
            ("type", form["type"] or "-"),
            *((name, json.dumps(value)) for name, value in form["fields"].items()),
        ]
    )


@click.group(cls=Group, name="object")
def object_() -> None:
    """List, add, change, remove and watch the objects of the pool.

    An object is known by its hash, which every change changes. The node must take part in a pool:
    enabled = true under [objects].
    """


@object_.command(name="list")
@click.option("--type", "type_name", metavar="NAME", help="Objects of this type only.")
@pass_app
def list_(app: App, type_name: str | None) -> None:
    """List the objects: hash, type if it is known here, fields.

    With --json one object a line.
    """
    with app.client() as client:
        found = (o for o in client.objects() if type_name is None or o["type"] == type_name)
        if app.out.as_json:
            for form in found:
                app.out.json(form)
            return
        # Other commands take the hash, and take it whole only.
        rows = [(o["hash"], o["type"] or "-", Name(_summary(o["fields"]))) for o in found]
    app.out.table(("hash", "type", "fields"), rows, empty="No objects.")


@object_.command()
@click.argument("number", metavar="HASH", type=ObjectHash())
@pass_app
def show(app: App, number: str) -> None:
    """Print one object; exit code 8 if it is not there."""
    with app.client() as client:
        _show(app, client.object(number))


@object_.command()
@click.option("--type", "type_name", metavar="NAME", help="Its class's simple name.")
@click.argument("fields", nargs=-1, required=True, metavar="NAME=VALUE…")
@pass_app
def add(app: App, type_name: str | None, fields: tuple[str, ...]) -> None:
    """Add an object and print it; answered when it is on disk.

    A value is JSON (36, true, "36", [1, 2]) or, if it is none, a text. The order of the fields is
    that of the type's declaration: the hash hangs on it.
    """
    with app.client() as client:
        _show(app, client.add_object(_fields(fields), type_name=type_name))


@object_.command(name="set")
@click.argument("number", metavar="HASH", type=ObjectHash())
@click.argument("fields", nargs=-1, required=True, metavar="NAME=VALUE…")
@pass_app
def set_(app: App, number: str, fields: tuple[str, ...]) -> None:
    """Change fields of an object and print it with its new hash."""
    with app.client() as client:
        _show(app, client.change_object(number, _fields(fields)))


@object_.command()
@click.argument("number", metavar="HASH", type=ObjectHash())
@pass_app
def remove(app: App, number: str) -> None:
    """Remove an object, here and everywhere."""
    with app.client() as client:
        client.remove_object(number)
    if app.out.as_json:
        app.out.json({"removed": number})
    else:
        app.out.line(f"removed {number}")


@object_.command()
@pass_app
def types(app: App) -> None:
    """List the declared types: the classes of Java programs that share the pool.

    Where it says config, the type stands in the configuration and is changed there.
    """
    with app.client() as client:
        forms = client.object_types()
    if app.out.as_json:
        app.out.json(forms)
        return
    rows = [(_declared(form), "config" if form["configured"] else "declared") for form in forms]
    app.out.table(("type", "from"), rows, empty="No types are declared.")


def _declared(form: TypeForm) -> str:
    fields = ", ".join(f"{field['type']} {field['name']}" for field in form["fields"])
    return f"{form['name']}({fields})"


@object_.command()
@click.argument("declaration", metavar="DECLARATION")
@pass_app
def declare(app: App, declaration: str) -> None:
    """Declare a class of a Java program, or declare it anew: "Person(String name, int age)".

    Its fields stand in the order in which the class's hashCode takes them. Types are int, long,
    Long, float, double, String, boolean, byte, short, list and map. Answered when it is on disk.
    """
    from hyperbloom.objects.classes.declarations import Declaration

    try:
        declared = Declaration.parse(declaration)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with app.client() as client:
        form = client.declare_type(declared.name, declared.pairs())
    if app.out.as_json:
        app.out.json(form)
    else:
        app.out.line(f"declared {_declared(form)}")


@object_.command()
@click.argument("name", metavar="NAME")
@pass_app
def undeclare(app: App, name: str) -> None:
    """Remove a declared type; its objects stay as they are. Exit code 8 if it is not declared."""
    with app.client() as client:
        client.undeclare_type(name)
    if app.out.as_json:
        app.out.json({"undeclared": name})
    else:
        app.out.line(f"undeclared {name}")


@object_.command()
@click.option("--count", "most", type=WholeNumber(min=1), metavar="N", help="Stop after N.")
@pass_app
def watch(app: App, most: int | None) -> None:
    """Print what happens to objects, until Ctrl-C.

    With --timeout it stops after that time, with exit code 6. --json prints one object a line, with
    the object before and after.
    """
    with app.client() as client:
        events = client.watch_objects(seconds=app.timeout(None))
        happened = (event for event in events if event is not None)
        for event in itertools.islice(happened, most):
            _print_event(app, event)


def _print_event(app: App, event: ObjectEvent) -> None:
    if app.out.as_json:
        form = {"event": event.kind, "before": event.before, "after": event.after}
        app.out.json(form, flush=True)
        return
    shown = event.after or event.before
    if shown is not None:
        number = shown["hash"]
        if event.kind == "changed" and event.before is not None:
            number = f"{event.before['hash']} -> {number}"
        app.out.line(f"{event.kind}\t{number}\t{_summary(shown['fields'])}")
        app.out.raw(b"", flush=True)
