"""Commands about the feeds a node takes part in."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Group, exit_with, pass_app
from hyperbloom.cli.parameters import (
    AGE,
    HOST_PORT,
    PUBLIC_KEY,
    as_bytes,
    dialect_option,
    hex_option,
)
from hyperbloom.cli.printable import printable
from hyperbloom.cli.tables import Key, Name
from hyperbloom.cli.trust import note_file_wins, note_lacks, own_trust
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_duration, format_size

if TYPE_CHECKING:
    from hyperbloom.api.client import Client
    from hyperbloom.api.forms import FeedForm

__all__ = ["alias_cell", "feed", "trust_cell"]


@click.group(cls=Group)
def feed() -> None:
    """The feeds this node takes part in."""


def trust_cell(trust: str, expires: float | None) -> str:
    """Whether this node may write, in a few words: the API's word, and the end of its chain."""
    if trust != "member":
        return {"expired": "EXPIRED", "none": "NOT TRUSTED"}.get(trust, trust)
    if expires is None:
        return "member"
    left = expires - time.time()
    # The larger unit is enough in a table.
    return f"member, {format_duration(left).split()[0]} left" if left >= 0 else "EXPIRED"


def alias_cell(form: Mapping[str, Any]) -> Name:
    """What a feed is called: its alias, or own for the node's own, which commands take too."""
    return Name(form["alias"] or ("own" if form["own"] else "-"))


def _present(client: Client, key: bytes) -> dict[str, Any]:
    """The settings of a feed that is joined already, else nothing."""
    names = (
        "alias", "mode", "ranges", "dialect", "peers", "issue_links",
        "retain_age", "retain_values", "retain_bytes", "tombstones",
    )  # fmt: skip
    for form in client.feeds():
        if form["key"] == key.hex():
            return {name: found for name, found in form.items() if name in names}
    return {}


@feed.command("join")
@click.argument("key", type=PUBLIC_KEY, metavar="FEED")
@click.option(
    "--peer", "peers", multiple=True, type=HOST_PORT, metavar="HOST:PORT", help="A node to dial."
)
@click.option(
    "--mode",
    type=click.Choice(["full", "range", "light"]),
    help="Keep all values (default), those of --range, or none (ask and publish only).",
)
@click.option(
    "--range",
    "ranges",
    nargs=2,
    multiple=True,
    metavar="S E",
    help="For mode range: keep values from S up to E; E may be '' for no end.",
)
@click.option("--alias", help="A short name for the feed on this node.")
@dialect_option
@click.option("--no-issue-links", is_flag=True, help="Do not issue Links to peers that ask.")
@click.option(
    "--retain-age", type=AGE, metavar="DURATION", help="Forget what arrived earlier; 0: nothing."
)
@click.option(
    "--retain-values",
    type=click.IntRange(min=0),
    metavar="N",
    help="Forget the oldest beyond N values; 0: none.",
)
@click.option(
    "--retain-bytes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Forget the oldest beyond N bytes; 0: none.",
)
@click.option(
    "--tombstones",
    type=click.Choice(["off", "owner", "members"]),
    help="Whose tombstones to follow (default: off).",
)
@hex_option
@pass_app
def join(
    app: App,
    key: bytes,
    peers: tuple[str, ...],
    mode: str | None,
    ranges: tuple[tuple[str, str], ...],
    alias: str | None,
    dialect: str | None,
    no_issue_links: bool,
    retain_age: float | None,
    retain_values: int | None,
    retain_bytes: int | None,
    tombstones: str | None,
    as_hex: bool,
) -> None:
    """Take part in FEED (a public key in hex), or change how.

    For a feed that is joined already, what is not named stays as it is; peers are added.
    """
    if (mode == "range") != bool(ranges):
        raise click.UsageError("--mode range and --range S E go together")
    kept = {
        "retain_age": retain_age,
        "retain_values": retain_values,
        "retain_bytes": retain_bytes,
        "tombstones": tombstones,
    }
    settings: dict[str, Any] = {name: one for name, one in kept.items() if one is not None}
    if mode is not None:
        settings["mode"] = mode
        settings["ranges"] = [
            [as_bytes(s, as_hex=as_hex).hex(), as_bytes(e, as_hex=as_hex).hex() if e else None]
            for s, e in ranges
        ]
    if alias is not None:
        settings["alias"] = alias
    if dialect is not None:
        settings["dialect"] = dialect
    if no_issue_links:
        settings["issue_links"] = False
    with app.client() as client:
        present = _present(client, key)
        known = {"peers": list(dict.fromkeys((*present.get("peers", ()), *peers)))}
        form = client.join_feed({**present, **settings, **known, "key": key.hex()})
    if app.out.as_json:
        app.out.json(form)
    else:
        app.out.sentence(f"Joined {form['alias'] or form['key']}. {own_trust(form)}")
    note_lacks(app, form)
    note_file_wins(app, form)


@feed.command("list")
@pass_app
def list_feeds(app: App) -> None:
    """List the feeds."""
    with app.client() as client:
        feeds = client.feeds()
    if app.out.as_json:
        app.out.json({"feeds": feeds})
        return
    rows = []
    for form in feeds:
        chain = form["chain"]
        rows.append(
            (
                Key(form["key"]),
                alias_cell(form),
                form["mode"],
                app.out.number(form["count"]),
                format_size(form["bytes"]) if app.out.is_terminal else str(form["bytes"]),
                trust_cell(form["trust"], None if chain is None else chain["expires"]),
            )
        )
    app.out.table(("feed", "alias", "mode", "values>", "size>", "trust"), rows, empty="No feeds.")


def _confirmed(form: FeedForm) -> bool:
    named = printable(form["alias"] or form["key"])
    return click.confirm(
        f"Leave {named} and remove its {form['count']:,} values from this node?", err=True
    )


@feed.command("leave")
@click.argument("name", metavar="FEED")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def leave(app: App, name: str, yes: bool) -> None:
    """Leave FEED and remove its values from this node."""
    with app.client() as client:
        form = client.feed(name)
        if not yes and sys.stdin.isatty() and not _confirmed(form):
            app.out.note("nothing was changed")
            exit_with(ExitCode.FAILED)
        client.leave_feed(form["key"])
    if app.out.as_json:
        app.out.json({"left": form["key"], "count": form["count"]})
    else:
        app.out.line(f"Left {form['alias'] or form['key']}; its values are removed.")
