"""The command `discover`: how the search for a feed's peers goes, as it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, exit_with, pass_app
from hyperbloom.cli.offers import offer_feeds
from hyperbloom.cli.output import counted
from hyperbloom.exit_codes import ExitCode

if TYPE_CHECKING:
    from hyperbloom.client.client import Client

__all__ = ["discover", "remarks"]

#: How often the node is asked, in seconds.
POLL_SECONDS = 0.5

#: Characters of a key that are shown.
_KEY = 12


@click.command(cls=Command)
@click.argument("feed", required=False, metavar="[FEED]", shell_complete=offer_feeds)
@click.option("--until-joined", is_flag=True, help="Stop as soon as a peer is connected.")
@pass_app
def discover(app: App, feed: str | None, until_joined: bool) -> None:
    """Show live what is asked, found and joined in the search for a feed's peers, until Ctrl-C.

    FEED is a key or an alias; left out, the feed that is meant elsewhere. With --timeout it stops
    after that time, with exit code 6. --json prints the whole state whenever it has changed.
    """
    seconds = app.timeout(None)
    end = None if seconds is None else time.monotonic() + seconds
    with app.client() as client:
        _refuse_if_off(app, client, feed)
        before: Mapping[str, Any] = {"found": [], "dht": {}}
        while True:
            state = client.discovery(feed)
            _show(app, before, state)
            before = state
            if until_joined and (state.get("tracker") or {}).get("joined"):
                return
            if end is not None and time.monotonic() >= end:
                exit_with(ExitCode.TIMEOUT)
            time.sleep(POLL_SECONDS)


def _refuse_if_off(app: App, client: Client, feed: str | None) -> None:
    if not client.discovery(feed)["enabled"]:
        raise click.ClickException(
            f"discovery is off; set enabled = true under [discovery] in {app.config.path} and "
            "start the node anew"
        )


def _show(app: App, before: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    if not app.out.as_json:
        for line in remarks(before, state):
            app.out.line(f"{time.strftime('%H:%M:%S')}  {line}")
    elif before != state:
        app.out.json(state, flush=True)


def remarks(before: Mapping[str, Any], state: Mapping[str, Any]) -> Iterator[str]:
    """What has happened between two states, in lines for people."""
    yield from _dht_remarks(before["dht"], state["dht"])
    yield from _tracker_remarks(before.get("tracker") or {}, state.get("tracker"))
    yield from _swarm_remarks(before.get("swarm") or {}, state.get("swarm"))
    known = {one["address"]: one for one in before["found"]}
    for one in state["found"]:
        yield from _found_remarks(known.get(one["address"], {}), one)


def _dht_remarks(before: Mapping[str, Any], dht: Mapping[str, Any]) -> Iterator[str]:
    if before.get("good_nodes") != dht["good_nodes"]:
        yield f"DHT: {dht['good_nodes']} good nodes of {dht['nodes']} known"
    if dht["external_address"] and before.get("external_address") != dht["external_address"]:
        yield f"DHT: it sees this node at {dht['external_address']}"


def _tracker_remarks(before: Mapping[str, Any], tracker: Mapping[str, Any] | None) -> Iterator[str]:
    if tracker is None:
        if before:
            yield "tracker: stopped"
        return
    if tracker["joined"] != before.get("joined", False):
        yield "feed: a peer is connected" if tracker["joined"] else "feed: no peer is connected"
    if tracker["last_lookup"] and before.get("last_lookup") != tracker["last_lookup"]:
        yield (
            f"tracker: asked {tracker['lookup_asked']} nodes, {tracker['lookup_answered']} "
            f"answered; {counted(tracker['records_now'], 'record')}"
        )
    if tracker["puts"] != before.get("puts", 0):
        read_back = "read back" if tracker["reachable"] else "not read back"
        yield (
            f"tracker: published to {tracker['put_asked']} nodes, {tracker['put_stored']} stored, "
            f"{tracker['put_refused']} refused; {read_back}"
        )
    if tracker["problem"] and before.get("problem") != tracker["problem"]:
        yield f"tracker: {tracker['problem']}"


def _swarm_remarks(before: Mapping[str, Any], swarm: Mapping[str, Any] | None) -> Iterator[str]:
    if swarm is None:
        return
    if swarm["last_announce"] and before.get("last_announce") != swarm["last_announce"]:
        yield f"swarm: announced to {swarm['announced_to']} nodes"
    if swarm["last_lookup"] and before.get("last_lookup") != swarm["last_lookup"]:
        yield f"swarm: {counted(swarm['peers_found'], 'address')} announced by others or us"


def _found_remarks(before: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    where = f"{found['address']} ({found['source'] or 'known'})"
    if before.get("state") == found["state"] and before.get("problem") == found["problem"]:
        return
    match found["state"]:
        case "joined":
            yield f"joined {found['key'][:_KEY]}… at {where}"
        case "own":
            yield f"found this node itself at {where}"
        case "resting":
            yield f"left {where} for now: {found['problem'] or 'a peer that is connected already'}"
        case "waiting":
            yield f"found {where}; others are dialled first"
        case _:
            yield f"dialling {where}" + (f": {found['problem']}" if found["problem"] else "")
