"""Commands that show how the node stands: status, peers, and who is known to speak `noise`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, Group, exit_with, full_option, pass_app
from hyperbloom.cli.commands.feeds import alias_cell, own_key_remark, trust_cell
from hyperbloom.cli.commands.integrations import problems_of
from hyperbloom.cli.offers import offer_noise
from hyperbloom.cli.output import counted
from hyperbloom.cli.parameters import PEER_KEY
from hyperbloom.cli.tables import Key, PeerKey, key_text
from hyperbloom.exit_codes import ExitCode
from hyperbloom.feed_words import LINK_ENDS_SOON
from hyperbloom.units import format_duration, format_moment, format_size

if TYPE_CHECKING:
    from hyperbloom.api.schemas.integrations import IntegrationForm
    from hyperbloom.client.client import Client

__all__ = ["peers", "status"]

#: Peers turned away that the status tells of, and peers without protection that `peers` names.
REFUSALS_SHOWN = 5
BARE_SHOWN = 8


def _ago(moment: float | None) -> str:
    return "never" if moment is None else f"{format_duration(time.time() - moment)} ago"


def _feed_name(feed: Mapping[str, Any]) -> str:
    return feed["alias"] or ("own" if feed["own"] else feed["key"][:12] + "…")


def _digest_cell(app: App, feed: Mapping[str, Any]) -> str:
    """A feed's digest, or how far it is computed, in a store of an older version."""
    digest: str | None = feed["digest"]
    if digest is None:
        return f"computed to {100 * (feed['count'] - feed['digest_left']) // feed['count']} %"
    return digest[:8] if app.out.is_terminal else digest


@click.command(cls=Command)
@full_option
@click.option("--web", is_flag=True, help="Print a link that lets a browser in, once.")
@pass_app
def status(app: App, *, web: bool) -> None:
    """Show the node at a glance: addresses, feeds, trust, peers, what is wrong.

    Two nodes have the same values of a feed when its digest is the same on both; a node that was
    brought up to date computes it first, and says how far it is. With --web: a link
    to the node's status page, for one browser, which may then read and nothing else; it has to be
    opened within two minutes.
    """
    with app.client() as client:
        if web:
            offer = client.offer_session()
            app.out.json(offer) if app.out.as_json else app.out.line(offer["url"])
            return
        form = client.status()
    if app.out.as_json:
        app.out.json(form)
        return
    _show_node(app, form)
    if app.out.is_terminal:
        app.out.line("")
    rows = [
        (
            Key(feed["key"]),
            alias_cell(feed),
            feed["mode"],
            app.out.number(feed["count"]),
            str(feed["peers"]),
            trust_cell(feed["trust"], feed["chain_expires"]),
            _digest_cell(app, feed),
        )
        for feed in form["feeds"]
    ]
    app.out.table(
        ("feed", "alias", "mode", "values>", "peers>", "trust", "digest"), rows, empty="No feeds."
    )
    if form["objects"] is not None:
        _show_pool(app, form["objects"])
    searched = {search["feed"] for search in form["discovery"].get("feeds", ())}
    remarks = [
        remark
        for feed in form["feeds"]
        for remark in _remarks(app, feed, searched=feed["key"] in searched)
    ]
    if form["store_problem"]:
        remarks.insert(0, f"store: {form['store_problem']}")
    # A node that was not restarted yet may be older than this command.
    remarks += problems_of(form.get("integrations", ()))
    remarks += _rates(form)
    remarks += _refusals(form["refusals"])
    if remarks and app.out.is_terminal:
        app.out.line("")
    for remark in remarks:
        app.out.sentence(remark)


def _rates(form: Mapping[str, Any]) -> Iterator[str]:
    """The rates of `[limits]` that are set, and whether they hold something back now."""
    for way, word in (("sending", "sends"), ("receiving", "takes")):
        # A node that was not restarted yet may be older than this command.
        found = form.get(way) or {"rate": 0, "peer_rate": 0}
        rates = [
            f"{format_size(found[key])}/s{whose}"
            for key, whose in (("rate", ""), ("peer_rate", " for each peer"))
            if found[key]
        ]
        if rates:
            waiting = found["waiting"]
            held = f"; {counted(waiting, 'connection')} held back now" if waiting else ""
            yield f"[limits]: the node {word} at most {' and '.join(rates)}{held}"


def _show_pool(app: App, pool: Mapping[str, Any]) -> None:
    """The object pool: figures, peers with their latency, what is wrong."""
    if app.out.is_terminal:
        app.out.line("")
    listening = ", ".join(pool["listening"]) or "no (it only dials)"
    app.out.facts(
        [
            ("objects", f"{app.out.number(pool['count'])}, {format_size(pool['bytes'])}"),
            ("pool digest", pool["digest"][:8] if app.out.is_terminal else pool["digest"]),
            ("pool listening", listening + (", AES flag" if pool["encrypted"] else "")),
            ("pool peers", ", ".join(map(_pool_peer, pool["peers"])) or "none"),
        ]
    )
    for problem in pool["problems"]:
        app.out.sentence(f"pool: no parent at {problem}")
    for peer in pool["peers"]:
        for sentence in _left_out(app, peer):
            app.out.sentence(f"pool: {sentence}")
    if pool["clashes"]:
        app.out.sentence(f"pool: {pool['clashes']} objects were refused: another has their hash")


def _left_out(app: App, peer: Mapping[str, Any]) -> Iterator[str]:
    """What a peer of another kind is not told, and what of it is not understood."""
    # A node that was not restarted yet may be older than this command.
    if peer.get("untold"):
        told = f"{counted(peer['untold'], 'message')} about objects it cannot read"
        yield f"{peer['address']} is not sent {told}, the latest {peer['untold_why']}"
    if peer.get("untyped"):
        came = counted(peer["untyped"], "object")
        declare = app.command("object", "declare")
        yield f"{came} of {peer['address']} fit no declared type: see `{declare}`"


def _pool_peer(peer: Mapping[str, Any]) -> str:
    latency = "" if peer["latency"] is None else f" ({peer['latency'] * 1e3:.1f} ms)"
    return f"{'to' if peer['outgoing'] else 'from'} {peer['address']}{latency}"


def _remarks(app: App, feed: Mapping[str, Any], *, searched: bool) -> Iterator[str]:
    """What is to be known of a feed beside its row, in sentences.

    `searched`: discovery looks for its peers.
    """
    name = _feed_name(feed)
    if feed["problem"]:
        lonely = "no peer; " if feed["trusted"] and not feed["peers"] else ""
        yield f"{name}: {lonely}{feed['problem']}"
    elif not feed["peers"] and feed["dials"]:
        yield f"{name}: not connected yet; dialling {', '.join(feed['dials'])}"
    elif not feed["peers"] and searched:
        yield f"{name}: no peer is found yet; see `{app.command('discover', feed['key'])}`"
    elif not feed["peers"] and not feed["owner"]:
        join = app.command("feed", "join", feed["key"], "--peer", "HOST:PORT")
        yield f"{name}: no peer is connected and none is named to dial: `{join}`"
    if feed["trusted"] and (ends := feed["chain_expires"]) is not None:
        left = ends - time.time()
        if left < LINK_ENDS_SOON:
            yield (
                f"{name}: this node may write for {format_duration(left)} more; have its link "
                "renewed by who invited it"
            )
    # A node that was not restarted yet may be older than this command.
    if feed.get("invited"):
        show = app.command("trust", "show", "--feed", feed["alias"] or feed["key"])
        yield f"{name}: {counted(feed['invited'], 'invitation')} not used here yet: `{show}`"
    if feed["forgotten"] or feed["forgotten_hashes"]:
        forgotten = feed["forgotten"] + feed["forgotten_hashes"]
        yield f"{name}: {counted(forgotten, 'value')} forgotten, so that the digest differs"
    if feed.get("last_round"):
        yield f"{name}: last asked for what differs by {_round(feed['last_round'])}"
    if feed.get("peers_unprotected"):
        yield f"{name}: {_bare_streams(app, feed)}"
    if feed["is_full"]:
        yield f"{name}: full by [limits]; values of peers are refused"
    for lack in feed["lacks"]:
        yield f"{name}, dialect {feed['dialect']}: {lack}"
    if feed["own"]:
        yield f"{name}: {own_key_remark(feed)}"


def _bare_streams(app: App, feed: Mapping[str, Any]) -> str:
    """How many of a feed's streams are not protected."""
    streams = counted(feed["peers"], "stream")
    return (
        f"not protected by noise: {feed['peers_unprotected']} of {streams} "
        f"(noise is {feed['noise']} here); see `{app.command('peers')}`"
    )


def _refusals(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Who was turned away last, newest first; who comes again and again is told of once."""
    times: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], Mapping[str, Any]] = {}
    for refusal in found:
        who = (refusal["address"].rpartition(":")[0], refusal["reason"])
        times[who] = times.get(who, 0) + 1
        if who not in last or refusal["at"] > last[who]["at"]:
            last[who] = refusal
    newest = sorted(last.items(), key=lambda item: -item[1]["at"])
    for who, refusal in newest[:REFUSALS_SHOWN]:
        often = f" ({times[who]} times)" if times[who] > 1 else ""
        yield (f"refused {refusal['address']} {_ago(refusal['at'])}{often}: {refusal['reason']}")


def _show_node(app: App, form: Mapping[str, Any]) -> None:
    store = form["store"]
    reached = ", ".join(form["addresses"]) or "-"
    if app.out.is_terminal and form["addresses"] and not app.config.advertise:
        reached += " (a guess: [node] advertise is not set)"
    app.out.facts(
        [
            ("node", form["public_key"]),
            ("running", f"{form['version']}, {format_duration(time.time() - form['started'])}"),
            ("listening", ", ".join(form["listening"]) or "no (it only dials)"),
            ("reached at", reached),
            ("connections", str(form["connections"])),
            ("discovery", _discovery(form["discovery"])),
            ("store", f"{format_size(store['used_bytes'])} used"),
            *([("denied", counted(form["denied"], "key"))] if form["denied"] else []),
            *_integrations(form.get("integrations", ())),
        ]
    )


def _integrations(found: Sequence[IntegrationForm]) -> Iterator[tuple[str, str]]:
    """How many outputs, inputs and hooks there are, and how many of them have a problem."""
    for kind in ("output", "input", "hook"):
        those = [one for one in found if one["kind"] == kind]
        problems = len(list(problems_of(those)))
        if those:
            yield f"{kind}s", f"{len(those)}{f', {problems} with a problem' if problems else ''}"


def _discovery(form: Mapping[str, Any]) -> str:
    """The search for peers in a few words."""
    if not form["enabled"]:
        return "off"
    dht, lan = form["dht"], form["lan"]
    seen = f", seen at {dht['external_address']}" if dht["external_address"] else ""
    local = (
        f"; multicast DNS on {', '.join(lan['interfaces'])}" if lan and lan["interfaces"] else ""
    )
    return f"{dht['good_nodes']} good DHT nodes{seen}{local}"


@click.group(cls=Group, invoke_without_command=True)
@full_option
@click.pass_context
def peers(ctx: click.Context) -> None:
    """List the peers this node is connected with: since when, values got and sent, last Sync.

    `by` (not in a terminal): how the peer was last asked for what differs, and what that came to.
    `in sync`: whether the peer held the same values, when that was seen, and from what. Below the
    table stands with whom the stream is not protected by `noise`: whoever knows the feed's key can
    read and alter those streams.
    """
    if ctx.invoked_subcommand is None:
        list_peers()


@pass_app
def list_peers(app: App) -> None:
    """The peers, in a table."""
    with app.client() as client:
        found = client.peers()
        names = _names(client) if found and app.out.is_terminal else {}
        denied = len(client.denied()) if app.out.is_terminal else 0
    if app.out.as_json:
        app.out.json({"peers": found})
        return
    if denied:
        app.out.note(f"{counted(denied, 'key')} denied: see `{app.command('trust', 'denied')}`")
    rows = [
        (
            peer["address"],
            PeerKey(peer["key"], peer.get("name")),
            Key(peer["feed"], names.get(peer["feed"])),
            "out" if peer["outgoing"] else "in",
            format_duration(time.time() - peer["since"]),
            f"{app.out.number(peer['values_in'])}/{app.out.number(peer['values_out'])}",
            *(() if app.out.is_terminal else _last_round(peer)),
            _sync_cell(peer),
            *(() if app.out.is_terminal else _for_pipes(peer)),
        )
        for peer in found
    ]
    # A terminal has no room for both, and the newest proof is the one that counts.
    last_sync = () if app.out.is_terminal else ("synced", "by")
    at_last = () if app.out.is_terminal else ("protected", "name")
    app.out.table(
        ("address", "key", "feed", "way", "for", "got/sent>", *last_sync, "in sync", *at_last),
        rows,
        empty=f"No peer is connected; see `{app.command('status')}`.",
    )
    if found and app.out.is_terminal:
        app.out.line("")
        app.out.sentence(_protection(found))


def _for_pipes(peer: Mapping[str, Any]) -> tuple[str, str]:
    """What a pipe gets beside what a terminal has room for."""
    return "yes" if _is_protected(peer) else "no", peer.get("name") or "-"


def _is_protected(peer: Mapping[str, Any]) -> bool:
    # A node that was not restarted yet may be older than this command, and protects nothing.
    return bool(peer.get("protected"))


def _protection(found: Sequence[Mapping[str, Any]]) -> str:
    """Which of the streams are not protected, in a sentence."""
    bare = [peer["address"] for peer in found if not _is_protected(peer)]
    if not bare:
        return "All streams are protected by noise."
    named = ", ".join(bare[:BARE_SHOWN])
    more = f" and {len(bare) - BARE_SHOWN} more" if len(bare) > BARE_SHOWN else ""
    return (
        f"Not protected by noise: {len(bare)} of {counted(len(found), 'stream')}, which whoever "
        f"knows the feed's key can read and alter: {named}{more}"
    )


@peers.command("noise")
@full_option
@pass_app
def noise_keys(app: App) -> None:
    """List the keys that have spoken `noise`, since when, and when last (to the day).

    Where the policy is `prefer`, they are not spoken to without it.
    """
    with app.client() as client:
        found = client.noise_keys()
    if app.out.as_json:
        app.out.json({"keys": found})
        return
    rows = [
        (
            PeerKey(one["key"], one.get("name")),
            format_moment(one["first_met"]),
            format_moment(one["last_met"]),
        )
        for one in reversed(found)
    ]
    app.out.table(("key", "first met", "last met"), rows, empty="No key has spoken noise yet.")


@peers.command("forget-noise")
@click.argument("key", type=PEER_KEY, shell_complete=offer_noise)
@pass_app
def forget_noise(app: App, key: str) -> None:
    """Speak to KEY without `noise` again, though it has spoken it before.

    KEY is a peer's public key, the first 16 or more of its digits, as the log and `peers noise`
    show them, or its name. Give it when you know that the peer runs software that does not speak
    `noise` any more. Once it speaks it again, it is remembered again. Exit code 1 if the key is not
    remembered, 8 if none that is begins with those digits.
    """
    with app.client() as client:
        answer = client.forget_noise(key)
    was_remembered, named = answer["was_remembered"], key_text(answer["key"], answer.get("name"))
    if app.out.as_json:
        app.out.json(answer)
    elif was_remembered:
        app.out.line(f"{named} may be spoken to without noise, until it speaks it again")
    else:
        app.out.line(f"{named} is not remembered as speaking noise")
    exit_with(ExitCode.OK if was_remembered else ExitCode.FAILED)


def _names(client: Client) -> dict[str, str]:
    """What feeds are called, by their keys."""
    feeds = client.feeds()
    return {f["key"]: name for f in feeds if (name := f["alias"] or ("own" if f["own"] else ""))}


def _asked_at(peer: Mapping[str, Any]) -> float | None:
    """When the peer was last asked for what differs, in either way."""
    # A node that was not restarted yet may be older than this command.
    by_round = (peer.get("last_round") or {}).get("at")
    return max((at for at in (peer["last_sync_sent"], by_round) if at is not None), default=None)


def _last_round(peer: Mapping[str, Any]) -> tuple[str, str]:
    """When and how a peer was last asked for what differs."""
    return _ago(_asked_at(peer)), _round(peer.get("last_round"))


def _round(found: Mapping[str, Any] | None) -> str:
    """How that was, and what it came to; - before it."""
    if found is None:
        return "-"
    parts = [found["way"]]
    if found["differences"] is not None:
        parts.append(f"{found['differences']:,} differed")
    if found["symbols"]:
        parts.append(f"{found['symbols']:,} symbols")
    return ", ".join([*parts, format_size(found["bytes"])])


def _sync_cell(peer: Mapping[str, Any]) -> str:
    """What is known of a peer: yes or no, when, and from what; - while nothing is."""
    if peer["in_sync"] is None:
        return "-"
    word = "yes" if peer["in_sync"] else "no"
    ago = format_duration(max(0.0, time.time() - peer["in_sync_at"]))
    return f"{word}, {ago} ago, {peer['in_sync_by']}"
