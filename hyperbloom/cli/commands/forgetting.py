"""Commands that look at what a key brought, forget values, and bring them back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, pass_app
from hyperbloom.cli.offers import offer_peers
from hyperbloom.cli.parameters import (
    KEY_BYTES,
    PEER_KEY,
    as_bytes,
    feed_option,
    hex_option,
    null_option,
    range_given,
    range_options,
    whole_hex,
    yes_option,
)
from hyperbloom.cli.tables import key_text

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import KeyFoundForm
    from hyperbloom.client.client import Client

__all__ = ["forget", "forgotten", "values"]

_BY = "its key, 16 or more of the first digits, or its name."

#: Values of one request of `forget`: one step of the node, and below the API's bound in bytes.
STEP_VALUES = 2_000
STEP_BYTES = 524_288

Selection = Mapping[str, Any]


def _selections(
    given: tuple[str, ...],
    by: str | None,
    prefix: str | None,
    bounds: tuple[str | None, str | None],
    *,
    as_hex: bool,
    null: bool,
) -> Iterator[Selection]:
    """What is meant, in one selection or, for a list of values, in parts that fit a request."""
    start, end = bounds
    named = [bool(given), by is not None, (prefix, start, end) != (None, None, None)]
    if sum(named) != 1:
        raise click.UsageError("say which values: VALUE… or -, --by, --prefix, or a range")
    if given:
        yield from (
            {"values": [v.hex() for v in part]} for part in _parts(given, as_hex=as_hex, null=null)
        )
    elif by is not None:
        yield {"by": by}
    else:
        first, beyond = range_given(start, end, prefix, as_hex=as_hex)
        selection: dict[str, Any] = {"start": first.hex()}
        yield selection if beyond is None else {**selection, "end": beyond.hex()}


def _parts(given: tuple[str, ...], *, as_hex: bool, null: bool) -> Iterator[list[bytes]]:
    from hyperbloom.cli.streams import batches

    if given == ("-",):
        for batch in batches(sys.stdin.fileno(), as_hex=as_hex, null=null):
            for start in range(0, len(batch), STEP_VALUES):
                yield batch[start : start + STEP_VALUES]
        return
    part: list[bytes] = []
    for value in (as_bytes(text, as_hex=as_hex) for text in given):
        if part and (len(part) >= STEP_VALUES or sum(map(len, part)) + len(value) > STEP_BYTES):
            yield part
            part = []
        part.append(value)
    yield part


@click.command(cls=Command)
@click.option(
    "--by",
    "key",
    type=PEER_KEY,
    required=True,
    metavar="KEY",
    shell_complete=offer_peers,
    help=f"Whose values: {_BY}",
)
@feed_option
@null_option
@click.option("--hex", "as_hex", is_flag=True, help="Print values in hex.")
@pass_app
def values(app: App, key: str, feed: str | None, null: bool, as_hex: bool) -> None:
    """Print the values that the peer KEY brought to this node, one a line, as they arrived.

    It is who passed a value on that is known, not who wrote it first. --json prints one object a
    line, with the arrival number and when.
    """
    with app.client() as client:
        for page in client.values_by(_found(client, key)["key"], feed=feed):
            if app.out.as_json:
                for one in page:
                    app.out.json(one)
                continue
            found = (one["value"] for one in page)
            shown = (v.encode("ascii") if as_hex else bytes.fromhex(v) for v in found)
            app.out.values(shown, null=null)


@click.command(cls=Command)
@feed_option
@click.option(
    "--by",
    type=PEER_KEY,
    metavar="KEY",
    shell_complete=offer_peers,
    help=f"What a peer brought: {_BY}",
)
@range_options
@hex_option
@null_option
@click.option("--dry-run", is_flag=True, help="Only count what would be done.")
@click.option("--erase", is_flag=True, help="Keep no copy, only a hash: peers go on sending it.")
@click.option("--publish", is_flag=True, help="Also ask other nodes to, by tombstones in the feed.")
@click.option("--undo", is_flag=True, help="Bring forgotten values back.")
@click.option("--hashes", is_flag=True, help="With --undo: drop all hashes of erased values.")
@yes_option
@click.argument("given", nargs=-1, metavar="[VALUE…|-]")
@pass_app
def forget(
    app: App,
    feed: str | None,
    by: str | None,
    start: str | None,
    end: str | None,
    prefix: str | None,
    as_hex: bool,
    null: bool,
    dry_run: bool,
    erase: bool,
    publish: bool,
    undo: bool,
    hashes: bool,
    yes: bool,
    given: tuple[str, ...],
) -> None:
    """Remove values from a feed on this node, so that no Sync brings them back.

    Which ones is said by a list (`-`: from standard input, one a line), by who brought them, by a
    prefix or by a range; it asks first, but for a list, and where standard input is no terminal,
    --yes is needed. Values of a list that are not here are kept from coming. Other nodes keep
    theirs. What is forgotten is remembered (`forgotten`); `put` and --undo bring it back.
    """
    if (erase or publish) and (undo or (publish and (erase or not given))):
        raise click.UsageError("--publish takes a list of values, without --erase or --undo")
    with app.client() as client:
        # One and the same throughout: a feed without values may be the default no more.
        feed = client.feed(feed)["key"]
        if hashes:
            _drop_hashes(app, client, feed, undo=undo)
            return
        total = 0
        # And one key, whatever it is called by then.
        source = None if by is None else _found(client, by)
        key = None if source is None else source["key"]
        selections = _selections(given, key, prefix, (start, end), as_hex=as_hex, null=null)
        if not (given or undo or dry_run):
            whole = list(selections)
            app.ask_first(lambda: _question(client, feed, whole, source), yes=yes)
            selections = iter(whole)
            if by is None:
                start_of, beyond = range_given(start, end, prefix, as_hex=as_hex)
                total = client.count_range(feed=feed, start=start_of, end=beyond).count
        steps = _steps(
            client, selections, feed, undo=undo, dry_run=dry_run, erase=erase, publish=publish
        )
        _report(app, steps, source, undo=undo, dry_run=dry_run, total=total)


def _drop_hashes(app: App, client: Client, feed: str | None, *, undo: bool) -> None:
    if not undo:
        raise click.UsageError("--hashes goes with --undo")
    client.drop_forgotten_hashes(feed=feed)
    if app.out.as_json:
        app.out.json({"hashes": 0})
    else:
        app.out.line("No hashes are kept any more; what was erased may come again.")


def _found(client: Client, word: str) -> KeyFoundForm:
    """The key that is meant from here on, whatever happens to its name."""
    if whole_hex(word, KEY_BYTES) is not None:
        return {"key": word.lower(), "name": None}
    return client.find_key(word)


def _question(
    client: Client, feed: str | None, selections: list[Selection], source: KeyFoundForm | None
) -> str:
    counted = sum(
        step["count"]
        for selection in selections
        for step in client.forget(selection, feed=feed, dry_run=True)
    )
    by = "" if source is None else f" that {key_text(source['key'], source['name'])} brought"
    return f"Forget {counted:,} values{by} on this node?"


def _steps(
    client: Client,
    selections: Iterator[Selection],
    feed: str | None,
    *,
    undo: bool,
    dry_run: bool,
    erase: bool,
    publish: bool,
) -> Iterator[Mapping[str, Any]]:
    for selection in selections:
        if undo:
            yield from client.undo_forgetting(selection, feed=feed, dry_run=dry_run)
        else:
            more = {"erase": erase, "dry_run": dry_run, "publish": publish}
            yield from client.forget(selection, feed=feed, **more)


def _report(
    app: App,
    steps: Iterator[Mapping[str, Any]],
    source: KeyFoundForm | None,
    *,
    undo: bool,
    dry_run: bool,
    total: int,
) -> None:
    done = {"count": 0, "bytes": 0, "absent": 0}
    where: dict[str, str | None] = {"feed": None, "name": None}
    word = "brought back" if undo else "forgotten"
    try:
        with app.progress("bringing back" if undo else "forgetting") as progress:
            for step in steps:
                done = {name: number + step[name] for name, number in done.items()}
                where = {name: step[name] for name in where}
                progress.at(done["count"], total)
    except BaseException:
        if done["count"] and not dry_run:
            app.out.note(f"{word} before it stopped: {done['count']}")
        raise
    if app.out.as_json:
        whose = {} if source is None else {"by": source["key"], "by_name": source["name"]}
        app.out.json({**done, "dry_run": dry_run, **where, **whose})
        return
    would = "would be " if dry_run else ""
    place = f" in {where['name']}" if where["name"] else ""
    by = "" if source is None else f", brought by {key_text(source['key'], source['name'])}"
    app.out.line(f"{done['count']} {would}{word}{place}, {done['bytes']} bytes{by}")
    if done["absent"]:
        app.out.line(f"{done['absent']} not here, {would}kept from coming")


@click.command(cls=Command)
@feed_option
@range_options
@hex_option
@null_option
@click.option("--count", "only_count", is_flag=True, help="Only count them.")
@pass_app
def forgotten(
    app: App,
    feed: str | None,
    start: str | None,
    end: str | None,
    prefix: str | None,
    as_hex: bool,
    null: bool,
    only_count: bool,
) -> None:
    """Print the values that this node has forgotten and keeps out, in byte order, one a line.

    Those of which only a hash is kept cannot be printed; --json and a remark say how many.
    """
    first, beyond = range_given(start, end, prefix, as_hex=as_hex)
    counted = {"count": 0, "hashes": 0}
    with app.client() as client:
        pages = _forgotten_pages(client, feed, first, beyond, counted)
        if app.out.as_json and not only_count:
            app.out.json_values(pages, lambda: ", " + json.dumps(counted)[1:-1])
            return
        for page in pages:
            if not only_count:
                shown = (v.hex().encode("ascii") for v in page) if as_hex else page
                app.out.values(shown, null=null)
    if app.out.as_json:
        app.out.json(counted)
        return
    if only_count:
        app.out.line(str(counted["count"]))
    if counted["hashes"]:
        app.out.note(f"and {counted['hashes']} of which only a hash is kept")


def _forgotten_pages(
    client: Client, feed: str | None, start: bytes, end: bytes | None, counted: dict[str, int]
) -> Iterator[list[bytes]]:
    """The forgotten values that are kept whole; `counted` is brought up to date with each page."""
    position: bytes | None = start
    while position is not None:
        page, position, hashes = client.forgotten_page(feed=feed, start=position, end=end)
        counted.update(count=counted["count"] + len(page), hashes=hashes)
        yield page
