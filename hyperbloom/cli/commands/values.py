"""Commands that write and read a feed's values: put, get, has, count, watch."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from hyperbloom.cli.app import App, Command, exit_with, pass_app
from hyperbloom.cli.formatted import check_formatted, format_options, print_formatted
from hyperbloom.cli.parameters import (
    WholeNumber,
    as_bytes,
    feed_option,
    hex_option,
    null_option,
    range_given,
    range_options,
)
from hyperbloom.exit_codes import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from hyperbloom.client.client import Arrival, Client

__all__ = ["count", "get", "has", "put", "watch"]

#: How long a node that does not keep a range asks its peers for it before `get` prints.
FETCH_SECONDS = 10.0


def _given(values: tuple[str, ...], *, as_hex: bool, null: bool) -> Iterator[list[bytes]]:
    from hyperbloom.cli.streams import BATCH_BYTES, BATCH_VALUES, batches

    if values == ("-",):
        yield from batches(sys.stdin.fileno(), as_hex=as_hex, null=null)
        return
    batch: list[bytes] = []
    for value in (as_bytes(text, as_hex=as_hex) for text in values):
        full = len(batch) >= BATCH_VALUES or sum(map(len, batch)) + len(value) > BATCH_BYTES
        if batch and full:
            yield batch
            batch = []
        batch.append(value)
    yield batch


@click.command(cls=Command)
@feed_option
@hex_option
@null_option
@click.argument("values", nargs=-1, required=True, metavar="[VALUE…|-]")
@pass_app
def put(app: App, feed: str | None, as_hex: bool, null: bool, values: tuple[str, ...]) -> None:
    """Store values; answer when they are on disk.

    `-` reads values from standard input, one a line (empty lines are left out), however many there
    are; a CR before the line feed is left out. With -0 values end in NUL and may hold line feeds,
    as `find -print0` and `sort -z` write them. Prints how many were new, how many were there
    already, and in which feed.
    """
    new = known = 0
    where: dict[str, str | None] = {"feed": None, "name": None}
    try:
        typed = values == ("-",) and sys.stdin.isatty()
        with app.client() as client, app.progress("putting", hidden=typed) as progress:
            for batch in _given(values, as_hex=as_hex, null=null):
                answer = client.put(batch, feed=feed)
                new += answer["new"]
                known += answer["known"]
                # What follows goes where the first went, whatever feed is the default by then.
                feed, where = answer["feed"], {"feed": answer["feed"], "name": answer["name"]}
                if progress.is_shown and values == ("-",):
                    progress.at(*_read_so_far(new + known))
                else:
                    progress.at(new + known)
    except BaseException:
        if new + known:
            app.out.note(
                f"stored before it stopped: {new} new, {known} known in {where['name']}; what "
                "follows is about the values behind these"
            )
        raise
    if app.out.as_json:
        app.out.json({"new": new, "known": known, **where})
    else:
        app.out.line(f"{new} new, {known} known" + (f" in {where['name']}" if feed else ""))


def _read_so_far(values: int) -> tuple[int, int, str]:
    """How much of standard input was read: of a file its bytes, else the values that came."""
    found = os.fstat(sys.stdin.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size:
        return os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR), found.st_size, "bytes"
    return values, 0, "values"


@click.command(cls=Command)
@feed_option
@range_options
@click.option("--limit", type=WholeNumber(min=0), metavar="N", help="At most N values.")
@hex_option
@null_option
@format_options
@click.option("--local", is_flag=True, help="Do not ask peers for a range this node does not keep.")
@pass_app
def get(
    app: App,
    feed: str | None,
    start: str | None,
    end: str | None,
    prefix: str | None,
    limit: int | None,
    as_hex: bool,
    null: bool,
    form: str | None,
    allow: Path | None,
    set_name: str | None,
    local: bool,
) -> None:
    """Print values in byte order, one a line.

    A node that keeps the feed in part (mode range or light) first asks its peers for the range.
    Values that may hold line feeds or are no text are better printed with -0, for `xargs -0`,
    `sort -z` and `put -0 -`, or with --hex. A terminal gets what it would obey written out, such as
    \\x1b; a pipe or a file gets the values as they are.

    --as prints a file that another tool reads, with the values that fit it: a value is a domain, an
    address, a network or a mail address by what it is. What was left out is counted on standard
    error.
    """
    check_formatted(form, allow, set_name, as_hex, null, app.out.as_json)
    first, beyond = range_given(start, end, prefix, as_hex=as_hex)
    with app.client() as client:
        if not local and limit != 0:
            # Less than this command waits for the node, so that a slow peer is not a dead node.
            wait = min(FETCH_SECONDS, 0.8 * (app.timeout() or FETCH_SECONDS))
            client.fetch(feed=feed, start=first, end=beyond, limit=limit, timeout=wait)
        pages = client.pages(feed=feed, start=first, end=beyond, limit=limit)
        if form is not None:
            print_formatted(app, pages, form, allow, set_name)
            return
        if app.out.as_json:
            app.out.json_values(pages)
            return
        count = 0
        for page in pages:
            app.out.values((v.hex().encode("ascii") for v in page) if as_hex else page, null=null)
            count += len(page)
    if not count and limit != 0 and app.out.is_terminal:
        # A pipe gets nothing, a person an answer.
        app.out.note("no values in this range" if first or beyond is not None else "no values")


@click.command(cls=Command)
@feed_option
@click.option("--prefix", metavar="P", help="Whether any value begins with P.")
@hex_option
@null_option
@click.argument("values", nargs=-1, metavar="[VALUE…|-]")
@pass_app
def has(
    app: App,
    feed: str | None,
    prefix: str | None,
    as_hex: bool,
    null: bool,
    values: tuple[str, ...],
) -> None:
    """Say whether values are there; exit code 0 if every one is, 1 if any is not.

    `-` reads values from standard input, one a line, and answers each while more may come; where
    there is none, the exit code is 0. An answer is `yes` or `no`, a tab and the value; for a single
    VALUE, or --prefix, it stands alone. With -0 values and answers end in NUL.
    """
    if bool(values) == (prefix is not None):
        raise click.UsageError("say which values: VALUE…, -, or --prefix P")
    found: list[bool] = []
    alone = prefix is not None or (len(values) == 1 and values != ("-",))
    with app.client() as client:
        for batch, answers in _answers(client, feed, prefix, values, as_hex=as_hex, null=null):
            found += answers
            if not app.out.as_json:
                texts = [value.hex().encode("ascii") for value in batch] if as_hex else batch
                _print_answers(app, texts, answers, null=null, alone=alone)
    if app.out.as_json:
        app.out.json({"all": all(found), "has": found})
    exit_with(ExitCode.OK if all(found) else ExitCode.FAILED)


def _answers(
    client: Client,
    feed: str | None,
    prefix: str | None,
    values: tuple[str, ...],
    *,
    as_hex: bool,
    null: bool,
) -> Iterator[tuple[list[bytes], list[bool]]]:
    """What is asked about, and for each of it whether it is there."""
    if prefix is not None:
        beginning = as_bytes(prefix, as_hex=as_hex)
        first, _ = client.range_page(feed=feed, prefix=beginning, limit=1)
        yield [beginning], [bool(first)]
        return
    for batch in _given(values, as_hex=as_hex, null=null):
        yield batch, client.has(batch, feed=feed)


def _print_answers(
    app: App, texts: list[bytes], found: list[bool], *, null: bool, alone: bool
) -> None:
    words = [b"yes" if there else b"no" for there in found]
    if not alone:
        words = [word + b"\t" + text for word, text in zip(words, texts, strict=True)]
    app.out.values(words, null=null, flush=True)


@click.command(cls=Command)
@feed_option
@range_options
@hex_option
@pass_app
def count(
    app: App,
    feed: str | None,
    start: str | None,
    end: str | None,
    prefix: str | None,
    as_hex: bool,
) -> None:
    """Print how many values there are.

    With --json also their bytes and, of a whole feed, the digest, which is the same on nodes with
    the same values. The node counts a range without reading out its values.
    """
    first, beyond = range_given(start, end, prefix, as_hex=as_hex)
    answer: Mapping[str, object]
    with app.client() as client:
        if (start, end, prefix) == (None, None, None):
            answer = client.count(feed=feed)
        else:
            found = client.count_range(feed=feed, start=first, end=beyond)
            answer = {"count": found.count, "bytes": found.bytes}
    if app.out.as_json:
        app.out.json(answer)
    else:
        app.out.line(str(answer["count"]))


@click.command(cls=Command)
@feed_option
@range_options
@click.option("--existing", is_flag=True, help="First print what is there, as it arrived.")
@click.option("--count", "most", type=WholeNumber(min=1), metavar="N", help="Stop after N.")
@hex_option
@null_option
@pass_app
def watch(
    app: App,
    feed: str | None,
    start: str | None,
    end: str | None,
    prefix: str | None,
    existing: bool,
    most: int | None,
    as_hex: bool,
    null: bool,
) -> None:
    """Print new values as they arrive, until Ctrl-C.

    With --timeout it stops after that time, with exit code 6. --json prints one object a line, with
    the arrival number, the peer that brought the value, and when.
    """
    first, beyond = range_given(start, end, prefix, as_hex=as_hex)
    with app.client() as client:
        arrivals = client.watch(
            feed=feed,
            start=first,
            end=beyond,
            after=0 if existing else None,
            seconds=app.timeout(None),
        )
        _print_arrivals(app, arrivals, most, as_hex=as_hex, null=null)


def _print_arrivals(
    app: App, arrivals: Iterator[Arrival | None], most: int | None, *, as_hex: bool, null: bool
) -> None:
    values = (arrival for arrival in arrivals if arrival is not None)
    for arrival in itertools.islice(values, most):
        if app.out.as_json:
            form = {
                "seq": arrival.seq,
                "value": arrival.value.hex(),
                "origin": arrival.origin.hex(),
                "origin_name": arrival.origin_name,
                "received_at": arrival.received_at,
            }
            app.out.json(form, flush=True)
        else:
            value = arrival.value.hex().encode("ascii") if as_hex else arrival.value
            app.out.values([value], null=null, flush=True)
