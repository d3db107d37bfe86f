"""Commands about the feeds a node takes part in."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from hyperbloom.api.schemas.bodies import FeedSettingsForm
from hyperbloom.cli.app import App, Group, full_option, pass_app
from hyperbloom.cli.commands.trust import note_file_wins, note_lacks, own_trust
from hyperbloom.cli.offers import offer_feeds
from hyperbloom.cli.parameters import (
    AGE,
    HOST_PORT,
    KEY_BYTES,
    WholeNumber,
    as_bytes,
    dialect_option,
    hex_option,
    secret_line,
    whole_hex,
    yes_option,
)
from hyperbloom.cli.printable import printable
from hyperbloom.cli.tables import Key, Name
from hyperbloom.feed_words import Mode, Noise, Tombstones
from hyperbloom.units import format_duration, format_size

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import FeedForm
    from hyperbloom.client.client import Client

__all__ = ["alias_cell", "feed", "own_key_remark", "trust_cell"]


#: Where there is nothing to list.
NO_FEEDS = "No feeds; make one with `hyperbloom feed create NAME`, or join one."


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
    """What a feed is called: its alias, or own where its key is the node's; commands take both."""
    return Name(form["alias"] or ("own" if form["own"] else "-"))


def own_key_remark(form: Mapping[str, Any]) -> str:
    """What it means that a feed's key is the node's own, and what to do about it."""
    named = form["alias"] or "own"
    if not form["count"]:
        return (
            "its key is the node's own, so whoever knows the node's public key can read it; it is "
            f"empty: `hyperbloom feed leave {named}`"
        )
    return (
        "its key is the node's own, so whoever knows the node's public key can read it; to move "
        f"its values: `hyperbloom feed create NAME --from {named}`"
    )


def _key_or_alias(given: str | None) -> str:
    """A key in hex, or what may be an alias; raises `click.UsageError`."""
    from hyperbloom.feed_words import check_alias

    text = secret_line(given, "Public key of the feed")
    if whole_hex(text, KEY_BYTES) is None:
        try:
            check_alias(text)
        except ValueError:
            raise click.UsageError("FEED is 64 hex digits, or the alias of a feed") from None
    return text


def _key_of(client: Client, named: str) -> bytes:
    key = whole_hex(named, KEY_BYTES)
    return bytes.fromhex(client.feed(named)["key"]) if key is None else key


def _present(client: Client, key: bytes) -> dict[str, Any]:
    """The settings of a feed that is joined already, else nothing."""
    names = FeedSettingsForm.__annotations__
    for form in client.feeds():
        if form["key"] == key.hex():
            return {name: found for name, found in form.items() if name in names}
    return {}


def _what_was_done(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """A sentence on a feed that was joined, or whose settings were other ones before."""
    named = printable(after["alias"] or after["key"])
    if not before:
        return f"Joined {named}."
    changed = [
        f"{name} is {_word(after[name])} (was {_word(before[name])})"
        for name in before
        if after[name] != before[name]
    ]
    return f"Changed {named}: {', '.join(changed)}." if changed else f"{named} stays as it is."


def _word(found: Any) -> str:
    """A setting as the configuration would have it."""
    return "not set" if found is None else printable(json.dumps(found, ensure_ascii=False))


@feed.command("join")
@click.argument("given", required=False, metavar="[FEED|-]", shell_complete=offer_feeds)
@click.option(
    "--peer", "peers", multiple=True, type=HOST_PORT, metavar="HOST:PORT", help="A node to dial."
)
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
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
    type=WholeNumber(min=0),
    metavar="N",
    help="Forget the oldest beyond N values; 0: none.",
)
@click.option(
    "--retain-bytes",
    type=WholeNumber(min=0),
    metavar="N",
    help="Forget the oldest beyond N bytes; 0: none.",
)
@click.option(
    "--tombstones",
    type=click.Choice(get_args(Tombstones)),
    help="Whose tombstones to follow (default: off).",
)
@click.option(
    "--noise",
    type=click.Choice(get_args(Noise)),
    help="With whom streams are protected (default: as `noise` under [node] says).",
)
@hex_option
@pass_app
def join(
    app: App,
    given: str | None,
    peers: tuple[str, ...],
    ranges: tuple[tuple[str, str], ...],
    no_issue_links: bool,
    as_hex: bool,
    **options: Any,
) -> None:
    """Take part in FEED, or change how.

    FEED is a public key in hex, or the alias of a feed that is joined; -, or left out: a key from
    standard input, asked for on a terminal. An argument stands in lists of processes and the
    shell's history, where others read a key. For a feed that is joined already, what is not named
    stays as it is; peers are added.
    """
    if (options["mode"] == "range") != bool(ranges):
        raise click.UsageError("--mode range and --range S E go together")
    named = _key_or_alias(given)
    # The other options have the names of the settings.
    settings = {name: found for name, found in options.items() if found is not None}
    if "mode" in settings:
        settings["ranges"] = [
            [as_bytes(s, as_hex=as_hex).hex(), as_bytes(e, as_hex=as_hex).hex() if e else None]
            for s, e in ranges
        ]
    if no_issue_links:
        settings["issue_links"] = False
    with app.client() as client:
        key = _key_of(client, named)
        present = _present(client, key)
        known = {"peers": list(dict.fromkeys((*present.get("peers", ()), *peers)))}
        form = client.join_feed({**present, **settings, **known, "key": key.hex()})
    if app.out.as_json:
        app.out.json(form)
    else:
        app.out.sentence(f"{_what_was_done(present, form)} {own_trust(form)}")
    note_lacks(app, form)
    note_file_wins(app, form)


@feed.command("list")
@full_option
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
    app.out.table(("feed", "alias", "mode", "values>", "size>", "trust"), rows, empty=NO_FEEDS)
    for form in feeds:
        if form["own"] and app.out.is_terminal:
            app.out.line("")
            app.out.sentence(f"{form['alias'] or 'own'}: {own_key_remark(form)}")


def _leaving(form: FeedForm) -> str:
    named = printable(form["alias"] or form["key"])
    return f"Leave {named} and remove its {form['count']:,} values from this node?"


@feed.command("leave")
@click.argument("name", metavar="FEED", shell_complete=offer_feeds)
@yes_option
@click.option("--delete-key", is_flag=True, help="Lose the feed's key, too, for good.")
@pass_app
def leave(app: App, name: str, yes: bool, delete_key: bool) -> None:
    """Leave FEED and remove its values from this node.

    It asks first; where standard input is no terminal, --yes is needed. A feed whose key this node
    holds is left with --delete-key, or after `feed key FEED --to FILE --remove`.
    """
    with app.client() as client:
        form = client.feed(name)
        app.ask_first(lambda: _leaving(form), yes=yes)
        client.leave_feed(form["key"], delete_key=delete_key)
    if app.out.as_json:
        app.out.json({"left": form["key"], "count": form["count"]})
    else:
        app.out.line(f"Left {form['alias'] or form['key']}; its values are removed.")
