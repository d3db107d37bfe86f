"""The command that renews links which this node has issued: trust renew."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.api.problems import Problem
from hyperbloom.cli.app import App, Command, exit_with, pass_app
from hyperbloom.cli.commands.trust import expiry_text
from hyperbloom.cli.offers import offer_peers
from hyperbloom.cli.parameters import AGE, EXPIRES, PEER_KEY, feed_option
from hyperbloom.cli.tables import key_text
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.exit_codes import ExitCode
from hyperbloom.feed_words import LINK_ENDS_SOON
from hyperbloom.units import format_duration

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import LinkForm
    from hyperbloom.client.client import Client

__all__ = ["renew"]

#: How the holder of a renewed link gets it, for programs and for people.
_SENT = "sent"
_WHEN_IT_CONNECTS = "when-it-connects"
_BY_HAND = "by-hand"
_WAYS = {
    _SENT: "it is connected and has the new link now",
    _WHEN_IT_CONNECTS: "it is not connected; this node sends it the new link when it is, once the "
    "old one has a week left",
    _BY_HAND: "its node does not take renewed links: invite it again, and have it `join` the line",
}


class NotIssued(HyperbloomError):
    """This node has issued no link to a key; the text says what to do."""

    kind = ErrorKind.NOT_FOUND


@dataclass(frozen=True, slots=True)
class _Held:
    """The link of this node to a key that lasts longest: until when, and since when it is there."""

    expires: float
    issued: float
    is_only_shorter: bool
    name: str | None


@click.command("renew", cls=Command)
@click.argument(
    "holder", type=PEER_KEY, required=False, metavar="[KEY]", shell_complete=offer_peers
)
@click.option("--all-expiring", is_flag=True, help="Every key whose link ends within --within.")
@click.option(
    "--within",
    type=AGE,
    default=LINK_ENDS_SOON,
    show_default="7d",
    metavar="DURATION",
    help="What --all-expiring takes for soon.",
)
@click.option(
    "--expires",
    type=EXPIRES,
    default=None,
    metavar="WHEN",
    help="How long the new link holds (30d, 12h), or a date; left out: for as long as the old one "
    "was issued for.",
)
@feed_option
@pass_app
def renew(
    app: App,
    holder: str | None,
    all_expiring: bool,
    within: float,
    expires: float | None,
    feed: str | None,
) -> None:
    """Renew the link that this node has issued to KEY, or every one that ends soon.

    The holder may write for longer, as before. If it is connected, it has the new link at once;
    else it gets it when it connects. `trust show` says who may write through whom, until when.
    """
    if (holder is None) != all_expiring:
        raise click.UsageError("give either KEY or --all-expiring")
    with app.client() as client:
        held = _held(client, feed)
        keys = _ending(held, within) if holder is None else [_meant(client, holder, held)]
        renewed = [
            _renew(app, client, key, held[key], expires, feed, is_one=holder is not None)
            for key in keys
        ]
    done = [one for one in renewed if one is not None]
    if app.out.as_json:
        app.out.json({"renewed": done})
    elif not keys:
        app.out.line(f"No link of this node ends within {format_duration(within)}.")
    exit_with(ExitCode.OK if len(done) == len(keys) else ExitCode.FAILED)


def _held(client: Client, feed: str | None) -> dict[str, _Held]:
    """The longest links of this node by their holders, expired ones too."""
    form = client.feed(feed)
    own = form["key"] if form["owner"] else client.status()["public_key"]
    links = client.links(feed=feed)
    named_by_others = {link["trustee"] for link in links if link["issuer"] != own}
    held: dict[str, _Held] = {}
    for link in sorted(links, key=_end):
        if link["issuer"] == own:
            key, name = link["trustee"], link.get("trustee_name")
            held[key] = _Held(_end(link), link["first_seen"], key in named_by_others, name)
    return held


def _end(link: LinkForm) -> float:
    return float("inf") if link["expires"] is None else link["expires"]


def _meant(client: Client, word: str, held: Mapping[str, _Held]) -> str:
    """The key that a word means to the node; raises `NotIssued`."""
    key = client.find_key(word)["key"]
    if key not in held:
        raise NotIssued(
            f"this node has issued no link to {key}; `trust show` says through whom it may write, "
            "and `invite` lets it write"
        )
    return key


def _ending(held: Mapping[str, _Held], within: float) -> Sequence[str]:
    """Whose links end soon, but those that may only shorten a way which another member opened."""
    now = time.time()
    return [
        key
        for key, one in held.items()
        if now <= one.expires < now + within and not one.is_only_shorter
    ]


def _renew(
    app: App,
    client: Client,
    key: str,
    before: _Held,
    expires: float | None,
    feed: str | None,
    *,
    is_one: bool,
) -> dict[str, Any] | None:
    """Renew a link and say so; None where the node refused one of several."""
    until = time.time() + before.expires - before.issued if expires is None else expires
    try:
        answer = client.issue_link(key, expires=until, feed=feed)
    except Problem as problem:
        if is_one:
            raise
        app.out.note(f"{key_text(key, before.name)}: {problem}")
        return None
    way = _way(client, key, feed)
    if not app.out.as_json:
        who = key_text(key, before.name)
        app.out.line(f"{who} may write until {expiry_text(answer['expires'])}")
        app.out.note(_WAYS[way])
    got = answer["expires"]
    if got is not None and got <= before.expires:
        app.out.note("that is no longer than before, because this node's own link ends then")
    return {
        "key": key, "expires": got, "before": before.expires, "link": answer["link"],
        "handed_over": way,
    }  # fmt: skip


def _way(client: Client, key: str, feed: str | None) -> str:
    about = client.feed(feed)["key"]
    peers = [peer for peer in client.peers() if (peer["key"], peer["feed"]) == (key, about)]
    if not peers:
        return _WHEN_IT_CONNECTS
    takes = any("renew-links-1" in peer["extensions"] for peer in peers)
    return _SENT if takes else _BY_HAND
