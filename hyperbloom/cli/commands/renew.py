"""The command that renews links which this node has issued: trust renew."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, exit_with, pass_app
from hyperbloom.cli.commands.trust import expiry_text
from hyperbloom.cli.parameters import AGE, EXPIRES, PUBLIC_KEY, feed_option
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


@click.command("renew", cls=Command)
@click.argument("holder", type=PUBLIC_KEY, required=False, metavar="[KEY]")
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
    holder: bytes | None,
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
        keys = [holder] if holder is not None else _ending(held, within)
        renewed = [_renew(app, client, key, held, expires, feed) for key in keys]
    done = [one for one in renewed if one is not None]
    if app.out.as_json:
        app.out.json({"renewed": done})
    elif not keys:
        app.out.line(f"No link of this node ends within {format_duration(within)}.")
    exit_with(ExitCode.OK if len(done) == len(keys) else ExitCode.FAILED)


def _held(client: Client, feed: str | None) -> dict[bytes, _Held]:
    """The longest links of this node by their holders, expired ones too."""
    form = client.feed(feed)
    own = form["key"] if form["owner"] else client.status()["public_key"]
    links = client.links(feed=feed)
    named_by_others = {link["trustee"] for link in links if link["issuer"] != own}
    held: dict[bytes, _Held] = {}
    for link in sorted(links, key=_end):
        if link["issuer"] == own:
            key = bytes.fromhex(link["trustee"])
            held[key] = _Held(_end(link), link["first_seen"], link["trustee"] in named_by_others)
    return held


def _end(link: LinkForm) -> float:
    return float("inf") if link["expires"] is None else link["expires"]


def _ending(held: Mapping[bytes, _Held], within: float) -> Sequence[bytes]:
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
    key: bytes,
    held: Mapping[bytes, _Held],
    expires: float | None,
    feed: str | None,
) -> dict[str, Any] | None:
    """Renew one link and say so; None where the node refused one of several."""
    before = held.get(key)
    if before is None:
        raise NotIssued(
            f"this node has issued no link to {key.hex()}; `trust show` says through whom it may "
            "write, and `invite` lets it write"
        )
    until = time.time() + before.expires - before.issued if expires is None else expires
    try:
        answer = client.issue_link(key, expires=until, feed=feed)
    except HyperbloomError as problem:
        if len(held) == 1 or not _is_refusal(problem):
            raise
        app.out.note(f"{key.hex()}: {problem}")
        return None
    way = _way(client, key, feed)
    if not app.out.as_json:
        app.out.line(f"{key.hex()} may write until {expiry_text(answer['expires'])}")
        app.out.note(_WAYS[way])
    got = answer["expires"]
    if got is not None and got <= before.expires:
        app.out.note("that is no longer than before, because this node's own link ends then")
    return {
        "key": key.hex(), "expires": got, "before": before.expires, "link": answer["link"],
        "handed_over": way,
    }  # fmt: skip


def _is_refusal(problem: HyperbloomError) -> bool:
    return problem.kind in (ErrorKind.NOT_TRUSTED, ErrorKind.BAD_REQUEST)


def _way(client: Client, key: bytes, feed: str | None) -> str:
    about = client.feed(feed)["key"]
    peers = [peer for peer in client.peers() if (peer["key"], peer["feed"]) == (key.hex(), about)]
    if not peers:
        return _WHEN_IT_CONNECTS
    takes = any("renew-links-1" in peer["extensions"] for peer in peers)
    return _SENT if takes else _BY_HAND
