"""Commands about who may write: trust, invite, join."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, Group, exit_with, pass_app
from hyperbloom.cli.parameters import (
    EXPIRES,
    HOST_PORT,
    PUBLIC_KEY,
    dialect_option,
    feed_option,
    secret_line,
)
from hyperbloom.cli.tables import Key
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_duration, format_moment

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import FeedForm

__all__ = ["expiry_text", "invite", "join", "note_file_wins", "note_lacks", "own_trust", "trust"]

#: An expiry that came out earlier than asked by more than this is remarked on.
CLIPPED_SECONDS = 1.0

_expires_option = click.option(
    "--expires",
    type=EXPIRES,
    default="30d",
    show_default=True,
    metavar="WHEN",
    help="How long it holds (30d, 12h, 45m, 90s), or a date (2031-05-01); never, in the draft.",
)


def expiry_text(expires: float | None) -> str:
    """When something expires, for a person: a date and how long that is from now."""
    if expires is None:
        return "never expires"
    left = expires - time.time()
    if left < 0:
        return f"EXPIRED {format_duration(-left)} ago"
    return f"{format_moment(expires)} (in {format_duration(left)})"


def _until(expires: float | None) -> str:
    return "for good" if expires is None else f"until {expiry_text(expires)}"


def _note_clipped(app: App, asked: float, got: float | None) -> None:
    if got is not None and asked - got > CLIPPED_SECONDS:
        app.out.note(
            f"it holds until {format_moment(got)} only, because this node's own link ends then"
        )


@click.group(cls=Group)
def trust() -> None:
    """Who may write to a feed, through whom, until when."""


@trust.command("issue")
@click.argument("trustee", type=PUBLIC_KEY)
@_expires_option
@feed_option
@pass_app
def issue(app: App, trustee: bytes, expires: float, feed: str | None) -> None:
    """Let TRUSTEE (a public key) write: sign a link and print it in hex.

    The trustee takes it with `trust add`, together with the links that lead to this node if this
    node is not the feed's owner. `invite` does all of that in one line.
    """
    with app.client() as client:
        answer = client.issue_link(trustee, expires=expires, feed=feed)
    _note_clipped(app, expires, answer["expires"])
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(answer["link"])


@trust.command("add")
@click.argument("feed")
@click.argument("links", nargs=-1, required=True, metavar="LINK…")
@pass_app
def add(app: App, feed: str, links: tuple[str, ...]) -> None:
    """Take a chain of links (in hex) for FEED, the owner's link first."""
    try:
        raw = [bytes.fromhex(link) for link in links]
    except ValueError:
        raise click.UsageError("a LINK is hex, as `trust issue` prints it") from None
    with app.client() as client:
        answer = client.add_links(raw, feed=feed)
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(f"{answer['holder']} may write {_until(answer['expires'])}")


@trust.command("list")
@feed_option
@pass_app
def list_links(app: App, feed: str | None) -> None:
    """List every link known for a feed, expired ones too."""
    with app.client() as client:
        links = client.links(feed=feed)
    if app.out.as_json:
        app.out.json({"links": links})
        return
    rows = [
        (
            Key(link["issuer"]),
            Key(link["trustee"]),
            expiry_text(link["expires"]),
            format_moment(link["first_seen"]),
        )
        for link in links
    ]
    app.out.table(
        ("issuer", "trusts", "until", "first seen"), rows, empty="No links are known yet."
    )


@trust.command("show")
@feed_option
@pass_app
def show(app: App, feed: str | None) -> None:
    """Show who may write to a feed now, through whom, until when."""
    with app.client() as client:
        form = client.feed(feed)
        members = client.members(feed=feed)
    if app.out.as_json:
        app.out.json({"feed": form["key"], "chain": form["chain"], "members": members})
        return
    rows = [
        (
            Key(found["key"]),
            "owner" if found["introduced_by"] is None else Key(found["introduced_by"]),
            str(found["depth"]),
            expiry_text(found["expires"]),
        )
        for found in members
    ]
    app.out.table(("who", "through", "links>", "until"), rows, empty="")
    if app.out.is_terminal:
        app.out.line("")
        app.out.sentence(own_trust(form))


@trust.command("deny")
@click.argument("key", type=PUBLIC_KEY)
@click.option("--reason", default="", metavar="TEXT", help="Why, for `trust denied`.")
@pass_app
def deny(app: App, key: bytes, reason: str) -> None:
    """Put KEY (a public key) on the deny list: out of every feed of this node, until `trust allow`.

    Its connections are closed, and those of everyone whose chain of links leads through it, this
    node's own chain too. What it brought stays: see `values --by` and `forget --by`. Other nodes
    are not told.
    """
    with app.client() as client:
        answer = client.deny(key, reason)
        lost = [form for form in client.status()["feeds"] if _is_cut_off(form)]
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(f"{key.hex()} is denied" + ("" if answer["new"] else ", as it was before"))
    for form in lost:
        name = form["alias"] or form["key"]
        app.out.note(f"this node may not write to {name} any more: {form['problem']}")


def _is_cut_off(form: Mapping[str, Any]) -> bool:
    """Whether it is a denied key that keeps this node from a feed."""
    return not form["trusted"] and "denies" in (form["problem"] or "")


@trust.command("allow")
@click.argument("key", type=PUBLIC_KEY)
@pass_app
def allow(app: App, key: bytes) -> None:
    """Take KEY off the deny list; its links count again if they still hold.

    Exit code 1 if it was not denied.

    What of it was forgotten stays forgotten.
    """
    with app.client() as client:
        answer = client.allow(key)
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(f"{key.hex()} is " + ("allowed" if answer["was_denied"] else "not denied"))
    exit_with(ExitCode.OK if answer["was_denied"] else ExitCode.FAILED)


@trust.command("denied")
@pass_app
def denied(app: App) -> None:
    """List the keys that are denied, since when and why."""
    with app.client() as client:
        found = client.denied()
    if app.out.as_json:
        app.out.json({"denied": found})
        return
    rows = [(Key(one["key"]), format_moment(one["denied_at"]), one["reason"]) for one in found]
    app.out.table(("key", "denied since", "why"), rows, empty="No key is denied.")


def own_trust(form: FeedForm) -> str:
    """Whether this node may write to a feed, in a sentence."""
    chain = form["chain"]
    if chain is None:
        if form["trust"] == "expired":
            return "EXPIRED: this node may write no more; ask a member for a new invitation."
        return "NOT TRUSTED: this node may not write here; ask a member for an invitation."
    if form["trust"] == "owner":
        return "This node is the owner."
    return f"This node may write {_until(chain['expires'])}."


def note_lacks(app: App, form: FeedForm) -> None:
    """Remarks on what the feed's dialect does not protect."""
    for lack in form["lacks"]:
        app.out.note(f"in dialect {form['dialect']}, {lack}")


def note_file_wins(app: App, form: FeedForm) -> None:
    """Remarks on settings that are other ones in the configuration file."""
    named: dict[str, Any] | None = next(
        (one.to_json() for one in app.config.feeds if one.key.hex() == form["key"]), None
    )
    if named is None:
        return
    names = (
        "alias", "mode", "ranges", "dialect", "peers", "issue_links",
        "retain_age", "retain_values", "retain_bytes", "tombstones", "noise",
    )  # fmt: skip
    others = [name for name in names if named[name] != dict(form)[name]]
    if others:
        app.out.note(
            f"{app.config.path} names this feed too, and what it says of {', '.join(others)} wins "
            "at the next start; change it there to keep what was said now"
        )


@click.command(cls=Command)
@click.argument("trustee", type=PUBLIC_KEY)
@_expires_option
@feed_option
@click.option(
    "--address",
    "addresses",
    multiple=True,
    type=HOST_PORT,
    metavar="HOST:PORT",
    help="Where to reach this node; else [node] advertise, or what it listens on.",
)
@pass_app
def invite(
    app: App, trustee: bytes, expires: float, feed: str | None, addresses: tuple[str, ...]
) -> None:
    """Let TRUSTEE (a public key) write: print one line for `join`.

    The trustee's key may come in the open. The line holds the feed's key, so send it in private:
    whoever knows that can read the feed.
    """
    with app.client() as client:
        answer = client.invite(trustee, expires=expires, addresses=addresses or None, feed=feed)
    _note_clipped(app, expires, answer["expires"])
    if feed is None and not app.out.as_json:
        app.out.note(f"the invitation is to {answer['name']}")
    if not addresses:
        _note_addresses(app, answer["addresses"])
    _note_dialect(app, answer["dialect"])
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(answer["invitation"])


def _note_dialect(app: App, dialect: str) -> None:
    from hyperbloom.feed_words import DEFAULT_DIALECT

    if dialect != DEFAULT_DIALECT:
        app.out.note(
            f"the feed speaks dialect {dialect}, which the invitation does not say: it is taken "
            f"with `join --dialect {dialect}`"
        )


def _note_addresses(app: App, addresses: list[str]) -> None:
    """Remarks on addresses that nobody has named: the node can only guess how others reach it."""
    if not addresses:
        app.out.note(
            "the invitation holds no address, because this node listens on none; give --address, "
            "or tell the other side one for `feed join --peer`"
        )
    elif not app.config.advertise:
        app.out.note(
            f"the invitation names {', '.join(addresses)}, where this node listens; if others "
            "reach it elsewhere, give --address HOST:PORT, or set advertise under [node] in "
            f"{app.config.path}"
        )


@click.command(cls=Command)
@click.argument("line", required=False, metavar="[-|LINE]")
@click.option("--alias", help="A short name for the feed on this node.")
@click.option(
    "--mode", type=click.Choice(["full", "light"]), help="full: keep all values (default)."
)
@dialect_option
@pass_app
def join(
    app: App, line: str | None, alias: str | None, mode: str | None, dialect: str | None
) -> None:
    """Take an invitation: the line that `invite` printed, from standard input.

    On a terminal it is asked for, and not shown. `join LINE` works, too, but an argument stands in
    lists of processes and the shell's history, and the line holds the feed's key.
    """
    from hyperbloom.invitation import decode_invitation

    text = secret_line(line, "Invitation")
    decode_invitation(text)
    named = {"alias": alias, "mode": mode, "dialect": dialect}
    settings = {name: found for name, found in named.items() if found is not None}
    with app.client() as client:
        form = client.accept(text, **settings)
    if not form["peers"]:
        app.out.note("the invitation holds no address; name a node to dial with `feed join --peer`")
    if app.out.as_json:
        app.out.json(form)
    else:
        app.out.sentence(f"Joined {form['alias'] or form['key']}. {own_trust(form)}")
    note_lacks(app, form)
    note_file_wins(app, form)
