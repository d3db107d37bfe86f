"""Commands about what keys are called on this node: peer name, unname, names."""

from __future__ import annotations

import click

from hyperbloom.cli.app import App, Group, exit_with, full_option, pass_app
from hyperbloom.cli.offers import offer_names, offer_peers
from hyperbloom.cli.parameters import PEER_KEY
from hyperbloom.cli.tables import Key, Name
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_moment

__all__ = ["peer"]


@click.group(cls=Group)
def peer() -> None:
    """What the keys of others are called on this node, and nowhere else."""


@peer.command("name")
@click.argument("key", type=PEER_KEY, shell_complete=offer_peers)
@click.argument("name")
@pass_app
def name_key(app: App, key: str, name: str) -> None:
    """Call KEY by a NAME of yours, in tables and wherever a command takes a key.

    NAME has up to 64 characters, begins with a letter or digit, and does not look like a key. No
    two keys have the same one. A key that has a name gets the new one in its place.
    """
    with app.client() as client:
        answer = client.name_key(key, name)
    if app.out.as_json:
        app.out.json(answer)
        return
    was = answer["was"]
    before = "" if was in (None, answer["name"]) else f", and no longer {was}"
    app.out.line(f"{answer['key']} is called {answer['name']}{before}")


@peer.command("unname")
@click.argument("key", type=PEER_KEY, shell_complete=offer_names)
@pass_app
def unname(app: App, key: str) -> None:
    """Call KEY (or its name) by no name any more; exit code 1 if it had none."""
    with app.client() as client:
        answer = client.unname_key(key)
    was = answer["was"]
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(f"{answer['key']} " + ("had no name" if was is None else f"was called {was}"))
    exit_with(ExitCode.FAILED if was is None else ExitCode.OK)


@peer.command("names")
@full_option
@pass_app
def list_names(app: App) -> None:
    """List the names, and whose they are."""
    with app.client() as client:
        names = client.names()
    if app.out.as_json:
        app.out.json({"names": names})
        return
    rows = [
        (Name(one["name"]), Key(one["key"]), format_moment(one["named_at"]))
        for one in sorted(names, key=lambda one: one["name"].casefold())
    ]
    app.out.table(
        ("name", "key", "since"),
        rows,
        empty="No key has a name; give one with `hyperbloom peer name KEY NAME`.",
    )
