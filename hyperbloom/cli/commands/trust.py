"""Commands about who may write: trust, invite, join."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, Group, exit_with, full_option, pass_app
from hyperbloom.cli.offers import offer_denied, offer_feeds, offer_peers
from hyperbloom.cli.parameters import (
    EXPIRES,
    HOST_PORT,
    PEER_KEY,
    dialect_option,
    feed_option,
    secret_line,
)
from hyperbloom.cli.tables import Cell, PeerKey, key_text
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_duration, format_moment

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import FeedForm, JoinedForm, MemberForm

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
@click.argument("trustee", type=PEER_KEY, shell_complete=offer_peers)
@_expires_option
@feed_option
@pass_app
def issue(app: App, trustee: str, expires: float, feed: str | None) -> None:
    """Let TRUSTEE (a public key, or whom this node knows) write: sign a link and print it in hex.

    The trustee takes it with `trust add`, together with the links that lead to this node if this
    node is not the feed's owner. `invite` does all of that in one line.
    """
    with app.client() as client:
        answer = client.issue_link(trustee, expires=expires, feed=feed)
    _note_clipped(app, expires, answer["expires"])
    if app.out.as_json:
        app.out.json(answer)
        return
    if (whom := _other_than(trustee, answer)) is not None:
        app.out.note(f"the link is for {whom}")
    app.out.line(answer["link"])


def _other_than(given: str, answer: Mapping[str, Any]) -> str | None:
    """The trustee's key and name, where there is more to say of it than was given."""
    # A node that was not restarted yet may be older than this command.
    key, name = answer.get("trustee", given.lower()), answer.get("trustee_name")
    return None if given.lower() == key and name is None else key_text(key, name)


@trust.command("add")
@click.argument("feed", shell_complete=offer_feeds)
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
        holder = key_text(answer["holder"], answer.get("holder_name"))
        app.out.line(f"{holder} may write {_until(answer['expires'])}")


@trust.command("list")
@full_option
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
            PeerKey(link["issuer"], link.get("issuer_name")),
            PeerKey(link["trustee"], link.get("trustee_name")),
            expiry_text(link["expires"]),
            format_moment(link["first_seen"]),
        )
        for link in links
    ]
    app.out.table(
        ("issuer", "trusts", "until", "first seen"), rows, empty="No links are known yet."
    )


@trust.command("show")
@full_option
@feed_option
@pass_app
def show(app: App, feed: str | None) -> None:
    """Show who may write to a feed now, through whom, until when.

    Keys that this node has invited and has not seen yet are listed apart: they may write, too, once
    they come. `trust deny` keeps a key out whose invitation went astray.
    """
    with app.client() as client:
        form = client.feed(feed)
        members = client.members(feed=feed)
    pending = [found for found in members if found.get("invited_at") is not None]
    if app.out.as_json:
        counted_apart = {"members": members, "invited": len(pending)}
        app.out.json({"feed": form["key"], "chain": form["chain"], **counted_apart})
        return
    if not app.out.is_terminal:
        more = ("who", "through", "links>", "until", "name", "invited")
        rows = [(*_member(found), found.get("name") or "-", _invited(found)) for found in members]
        app.out.table(more, rows, empty="")
        return
    came = [found for found in members if found.get("invited_at") is None]
    columns = ("who", "through", "links>", "until")
    app.out.table(columns, [_member(found) for found in came], empty="")
    app.out.line("")
    if pending:
        app.out.sentence(f"Invited, and not seen here yet ({len(pending)}):")
        app.out.table(columns, [_member(found) for found in pending], empty="")
        app.out.line("")
    app.out.sentence(own_trust(form))


def _member(found: MemberForm) -> tuple[Cell, ...]:
    by = found["introduced_by"]
    return (
        PeerKey(found["key"], found.get("name")),
        "owner" if by is None else PeerKey(by, found.get("introduced_by_name")),
        str(found["depth"]),
        expiry_text(found["expires"]),
    )


def _invited(found: MemberForm) -> str:
    """When a key was invited that has not come; - for one that has."""
    at = found.get("invited_at")
    return "-" if at is None else format_moment(at)


@trust.command("deny")
@click.argument("key", type=PEER_KEY, shell_complete=offer_peers)
@click.option("--reason", default="", metavar="TEXT", help="Why, for `trust denied`.")
@pass_app
def deny(app: App, key: str, reason: str) -> None:
    """Put KEY on the deny list: out of every feed of this node, until `trust allow`.

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
        named = key_text(answer["key"], answer.get("name"))
        app.out.line(f"{named} is denied" + ("" if answer["new"] else ", as it was before"))
    for form in lost:
        name = form["alias"] or form["key"]
        app.out.note(f"this node may not write to {name} any more: {form['problem']}")


def _is_cut_off(form: Mapping[str, Any]) -> bool:
    """Whether it is a denied key that keeps this node from a feed."""
    return not form["trusted"] and "denies" in (form["problem"] or "")


@trust.command("allow")
@click.argument("key", type=PEER_KEY, shell_complete=offer_denied)
@pass_app
def allow(app: App, key: str) -> None:
    """Take KEY off the deny list; its links count again if they still hold.

    Exit code 1 if it was not denied, 8 if no denied key begins with those digits.

    What of it was forgotten stays forgotten.
    """
    with app.client() as client:
        answer = client.allow(key)
    if app.out.as_json:
        app.out.json(answer)
    else:
        named = key_text(answer["key"], answer.get("name"))
        app.out.line(f"{named} is " + ("allowed" if answer["was_denied"] else "not denied"))
    exit_with(ExitCode.OK if answer["was_denied"] else ExitCode.FAILED)


@trust.command("denied")
@full_option
@pass_app
def denied(app: App) -> None:
    """List the keys that are denied, since when and why."""
    with app.client() as client:
        found = client.denied()
    if app.out.as_json:
        app.out.json({"denied": found})
        return
    names: tuple[str, ...] = () if app.out.is_terminal else ("name",)
    rows = [
        (
            PeerKey(one["key"], one.get("name")),
            format_moment(one["denied_at"]),
            one["reason"],
            *(one.get("name") or "-" for _ in names),
        )
        for one in found
    ]
    app.out.table(("key", "denied since", "why", *names), rows, empty="No key is denied.")


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
@click.argument("trustee", type=PEER_KEY, shell_complete=offer_peers)
@_expires_option
@feed_option
@click.option("--name", metavar="NAME", help="What TRUSTEE is to be called here (`peer name`).")
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
    app: App,
    trustee: str,
    expires: float,
    feed: str | None,
    name: str | None,
    addresses: tuple[str, ...],
) -> None:
    """Let TRUSTEE write: print one line for `join`.

    TRUSTEE is the key that `hyperbloom key` prints on the other node; it may come in the open. Of
    somebody whom this node knows, its first 16 digits or its name will do. The line holds the
    feed's key, so send it in private: whoever knows that can read the feed. Until TRUSTEE comes,
    `trust show` lists it apart.
    """
    with app.client() as client:
        answer = client.invite(
            trustee, expires=expires, addresses=addresses or None, name=name, feed=feed
        )
    _note_clipped(app, expires, answer["expires"])
    whom = _other_than(trustee, answer)
    if whom is not None and not app.out.as_json:
        app.out.note(f"the invitation to {answer['name']} is for {whom}")
    elif feed is None and not app.out.as_json:
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


def _wants(app: App, form: JoinedForm) -> bool:
    """Whether a feed that was joined before is to dial more; remarks on them where nobody says."""
    others, named = ", ".join(form["not_added"]), form["alias"] or form["key"]
    if sys.stdin.isatty() and not app.out.as_json:
        app.out.note(
            f"{named} is joined already and dials {', '.join(form['peers']) or 'no address'}; the "
            f"invitation names {others}, too"
        )
        return click.confirm("Dial these from now on?", default=False, err=True)
    app.out.note(
        f"{named} is joined already, so {others} of the invitation will not be dialled; to have it "
        "dialled, take the invitation with --add-addresses"
    )
    return False


@click.command(cls=Command)
@click.argument("line", required=False, metavar="[-|LINE]")
@click.option("--alias", help="A short name for the feed on this node.")
@click.option(
    "--inviter", metavar="NAME", help="What who invites is to be called here (`peer name`)."
)
@click.option(
    "--mode", type=click.Choice(["full", "light"]), help="full: keep all values (default)."
)
@dialect_option
@click.option(
    "--add-addresses",
    is_flag=True,
    help="Have a feed that is joined already dial the invitation's addresses, too.",
)
@pass_app
def join(app: App, line: str | None, inviter: str | None, **options: Any) -> None:
    """Take an invitation: the line that `invite` printed, from standard input.

    On a terminal it is asked for, and not shown. `join LINE` works, too, but an argument stands in
    lists of processes and the shell's history, and the line holds the feed's key.

    Of an invitation to a feed that is joined already the links are taken. Addresses that the feed
    does not dial yet are shown and asked about, on a terminal; elsewhere --add-addresses adds them.
    """
    from hyperbloom.invitation import decode_invitation

    text = secret_line(line, "Invitation")
    decode_invitation(text)
    # The options have the names of the request's members.
    settings = {name: found for name, found in options.items() if found not in (None, False)}
    if inviter is not None:
        settings["inviter_name"] = inviter
    with app.client() as client:
        form = client.accept(text, **settings)
        # A node that was not restarted yet may be older than this command.
        if form.get("not_added") and _wants(app, form):
            form = client.accept(text, **{**settings, "add_addresses": True})
    if not form["peers"]:
        app.out.note("the invitation holds no address; name a node to dial with `feed join --peer`")
    if app.out.as_json:
        app.out.json(form)
    else:
        app.out.sentence(f"Joined {form['alias'] or form['key']}. {own_trust(form)}")
        if "inviter" in form:  # a node that was not restarted yet may be older than this command
            by = PeerKey(form["inviter"], form["inviter_name"]).wide()
            app.out.sentence(f"Invited by {by}.")
    note_lacks(app, form)
    note_file_wins(app, form)
