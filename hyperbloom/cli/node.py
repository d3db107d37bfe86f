"""Commands about the node: init, run, key, status, peers, snapshot, verify."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, exit_with, pass_app
from hyperbloom.cli.feeds import trust_cell
from hyperbloom.cli.output import Key, Progress
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_duration, format_size

if TYPE_CHECKING:
    from hyperbloom.keys import Identity

__all__ = ["init", "key", "peers", "run", "snapshot", "status", "verify"]

#: What starts twistd where its script is not beside the interpreter.
_TWISTD = "from twisted.scripts.twistd import run; run()"


def _key_form(identity: Identity) -> dict[str, str]:
    from hyperbloom.keys import discovery_key

    return {
        "public": identity.public_key.hex(),
        "discovery": discovery_key(identity.public_key).hex(),
    }


@click.command(cls=Command, config_option=False, timeout_option=False)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--listen",
    multiple=True,
    metavar="ENDPOINT",
    help="Where to listen, such as tcp:4365:interface=127.0.0.1.",
)
@click.option("--advertise", multiple=True, metavar="HOST:PORT", help="Where others reach it.")
@pass_app
def init(app: App, folder: Path, listen: tuple[str, ...], advertise: tuple[str, ...]) -> None:
    """Make a node in DIR: a key of its own and a configuration to edit.

    Nothing is overwritten. Keep identity.key safe: it is the node's right to write.
    """
    from hyperbloom.cli.template import make_node

    identity, config = make_node(folder, listen=listen, advertise=advertise)
    if app.out.as_json:
        app.out.json({**_key_form(identity), "config": str(config)})
    else:
        app.out.line(f"Made {config}")
        app.out.line(f"Public key {identity.public_key.hex()}")
        if app.out.is_terminal:
            app.out.line(f"Start it with: hyperbloom run -c {config}")


@click.command(cls=Command, timeout_option=False)
@click.argument("twistd_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- TWISTD-OPTION…]")
@pass_app
def run(app: App, twistd_options: tuple[str, ...]) -> None:
    """Run the node in the foreground, by twistd, until Ctrl-C.

    What follows -- goes to twistd, such as --logfile.
    """
    from hyperbloom.keys import load_key_file

    config = app.config
    load_key_file(config.identity)
    script = Path(sys.executable).with_name("twistd")
    twistd = [str(script)] if script.is_file() else ["-c", _TWISTD]
    arguments = ["-n", "--pidfile=", *twistd_options, "hyperbloom", "-c", str(config.path)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *twistd, *arguments])  # noqa: S606


@click.command(cls=Command, timeout_option=False)
@pass_app
def key(app: App) -> None:
    """Print the node's public key, and the discovery key of its own feed.

    Give the public key to who invites this node. No node needs to run.
    """
    from hyperbloom.keys import load_key_file

    form = _key_form(load_key_file(app.config.identity))
    if app.out.as_json:
        app.out.json(form)
    else:
        app.out.facts(form.items())


def _ago(moment: float | None) -> str:
    return "never" if moment is None else f"{format_duration(time.time() - moment)} ago"


def _feed_name(feed: Mapping[str, Any]) -> str:
    return feed["alias"] or ("own feed" if feed["own"] else feed["key"][:12] + "…")


def _trust(feed: Mapping[str, Any]) -> str:
    cell = trust_cell(feed["chain_links"], feed["chain_expires"])
    has_expired = cell == "NOT TRUSTED" and "expired" in (feed["problem"] or "")
    return "EXPIRED" if has_expired else cell


@click.command(cls=Command)
@pass_app
def status(app: App) -> None:
    """Show the node at a glance: feeds, trust, peers, what is wrong.

    Two nodes have the same values of a feed when its digest is the same on both.
    """
    with app.client() as client:
        form = client.status()
    if app.out.as_json:
        app.out.json(form)
        return
    _show_node(app, form)
    rows = [
        (
            Key(feed["key"]),
            feed["alias"] or ("own" if feed["own"] else "-"),
            feed["mode"],
            app.out.number(feed["count"]),
            str(feed["peers"]),
            _trust(feed),
            feed["digest"][:8] if app.out.is_terminal else feed["digest"],
        )
        for feed in form["feeds"]
    ]
    app.out.table(
        ("feed", "alias", "mode", "values>", "peers>", "trust", "digest"), rows, empty="No feeds."
    )
    for feed in form["feeds"]:
        if feed["problem"]:
            app.out.line(f"{_feed_name(feed)}: {feed['problem']}")
        if feed["is_full"]:
            app.out.line(f"{_feed_name(feed)}: full by [limits]; values of peers are refused")
    for refusal in form["refusals"][:5]:
        app.out.line(f"refused {refusal['address']} {_ago(refusal['at'])}: {refusal['reason']}")


def _show_node(app: App, form: Mapping[str, Any]) -> None:
    store = form["store"]
    app.out.facts(
        [
            ("node", form["public_key"]),
            ("running", f"{form['version']}, {format_duration(time.time() - form['started'])}"),
            ("listening", ", ".join(form["listening"]) or "no (it only dials)"),
            ("connections", str(form["connections"])),
            ("store", f"{format_size(store['used_bytes'])} used"),
        ]
    )


@click.command(cls=Command)
@pass_app
def peers(app: App) -> None:
    """List the peers this node is connected with."""
    with app.client() as client:
        found = client.peers()
    if app.out.as_json:
        app.out.json({"peers": found})
        return
    rows = [
        (
            peer["address"],
            Key(peer["key"]),
            Key(peer["feed"]),
            "out" if peer["outgoing"] else "in",
            format_duration(time.time() - peer["since"]),
            f"{app.out.number(peer['values_in'])}/{app.out.number(peer['values_out'])}",
            _ago(peer["last_sync_sent"]),
        )
        for peer in found
    ]
    app.out.table(
        ("address", "key", "feed", "way", "for", "in/out>", "synced"),
        rows,
        empty="No peer is connected; `hyperbloom status` says what the dialled ones answer.",
    )


@click.command(cls=Command)
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@pass_app
def snapshot(app: App, target: Path) -> None:
    """Copy the store into a new folder OUT, of the running node or of one at rest.

    Exit code 1 if OUT is there already, or the folder it is to be in is not.
    """
    from hyperbloom.api.client import NodeUnreachable

    target = target.absolute()
    with Progress("copying the store"):
        try:
            with app.client(None) as client:
                form = client.snapshot(target)
        except NodeUnreachable:
            form = _snapshot_at_rest(app, target)
    if app.out.as_json:
        app.out.json(form)
    else:
        values = sum(feed["count"] for feed in form["feeds"])
        app.out.line(f"{len(form['feeds'])} feeds with {values} values are in {target}")


def _snapshot_at_rest(app: App, target: Path) -> dict[str, Any]:
    from hyperbloom.api.forms import flat_json, snapshot_target
    from hyperbloom.store import Store

    snapshot_target(str(target))
    store = Store.open(app.config.store_path, create=False)
    try:
        return {"target": str(target), **flat_json(store.snapshot(target))}
    finally:
        store.close()


@click.command(cls=Command)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@pass_app
def verify(app: App, path: Path | None) -> None:
    """Walk the whole store and say what is wrong; exit code 1 if anything is.

    PATH is a snapshot; left out, the node's own store, whether it runs or not.
    """
    with Progress("verifying") as progress:
        form = _verify(app, path, progress)
    if app.out.as_json:
        app.out.json(form)
    else:
        for problem in form["problems"]:
            app.out.line(problem)
        if form["ok"]:
            app.out.line(f"{form['values']} values, nothing is wrong")
    exit_with(ExitCode.OK if form["ok"] else ExitCode.FAILED)


def _verify(app: App, path: Path | None, progress: Progress) -> Mapping[str, Any]:
    from hyperbloom.api.client import NodeUnreachable

    if path is None:
        try:
            with app.client(None) as client:
                return client.verify()
        except NodeUnreachable:
            path = app.config.store_path
    from hyperbloom.api.forms import flat_json
    from hyperbloom.store import verify_path

    form: dict[str, Any] = flat_json(verify_path(path))
    return form
