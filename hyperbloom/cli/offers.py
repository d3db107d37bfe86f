"""What a shell is offered for a word that only the node knows: feeds, names and keys of peers.

The node is asked while somebody presses Tab, so briefly; where none answers nothing is offered, and
nothing is said. Words that a shell would have to quote are left out: the shells' scripts, which
click writes, would break them up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from hyperbloom.cli.app import app_of
from hyperbloom.feed_words import LEAST_DIGITS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hyperbloom.client.client import Client
    from hyperbloom.integrations.status import Kind

__all__ = [
    "offer_denied",
    "offer_feeds",
    "offer_integrations",
    "offer_names",
    "offer_noise",
    "offer_peers",
]

#: Longest wait for one of the node's answers, in seconds.
PATIENCE_SECONDS = 1.0

#: Digits of a key that are offered; all of them to who has typed more.
KEY_DIGITS = LEAST_DIGITS

_PLAIN = re.compile(r"[\w.@+/-]+")

#: Words with what they mean, and keys in hex with what they are called.
_Found = Iterable[tuple[str, str | None]]
_Offer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _asking(find: Callable[[Client], _Found]) -> _Offer:
    """What click calls to complete a word, from what `find` asks of the node."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            with app_of(ctx).client(PATIENCE_SECONDS) as client:
                found = list(find(client))
        except Exception:
            return []  # a traceback in the middle of a command line helps nobody
        words = {_typed(word, incomplete): meaning for word, meaning in found}
        return [
            CompletionItem(word, help=meaning)
            for word, meaning in words.items()
            if word.lower().startswith(incomplete.lower()) and _PLAIN.fullmatch(word)
        ]

    return offer


def _typed(word: str, incomplete: str) -> str:
    is_key = len(word) == 64 and len(incomplete) <= KEY_DIGITS
    return word[:KEY_DIGITS] if is_key else word


def _feeds(client: Client) -> Iterator[tuple[str, str | None]]:
    for form in client.feeds():
        yield form["alias"] or ("own" if form["own"] else form["key"]), f"{form['count']:,} values"


def _names(client: Client) -> Iterator[tuple[str, str | None]]:
    for form in client.names():
        yield form["name"], form["key"][:KEY_DIGITS]


def _peers(client: Client) -> Iterator[tuple[str, str | None]]:
    yield from _names(client)
    for form in client.peers():
        yield form["key"], form.get("name") or form["address"]


def _denied(client: Client) -> Iterator[tuple[str, str | None]]:
    for form in client.denied():
        yield form.get("name") or form["key"], form["reason"] or None


def _noise(client: Client) -> Iterator[tuple[str, str | None]]:
    for form in client.noise_keys():
        yield form.get("name") or form["key"], None


def offer_integrations(kind: Kind) -> _Offer:
    """Offers the names of outputs, inputs or hooks."""

    def find(client: Client) -> Iterator[tuple[str, str | None]]:
        for form in client.integrations(kind):
            yield form["name"], form["target"]

    return _asking(find)


offer_feeds = _asking(_feeds)
offer_names = _asking(_names)
offer_peers = _asking(_peers)
offer_denied = _asking(_denied)
offer_noise = _asking(_noise)
