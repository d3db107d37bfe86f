"""Everything a client of the API can make the node hold or do, with its bound and the reason.

Any user of this machine may connect to the TCP port, and so may the pages in their browsers; who
has the token, or may open the control socket, is held to the rest so that a slip of theirs stops
nobody else. None is for setting. The house's rule is that no turn of the reactor takes 50 ms.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BACKLOG",
    "CODE_SECONDS",
    "FRAME_SECONDS",
    "HEAD_SECONDS",
    "HISTORY_FEEDS",
    "HISTORY_MINUTES",
    "HISTORY_TENS",
    "IDLE_SECONDS",
    "KEEP_ALIVE_SECONDS",
    "LATEST_EXPIRY",
    "MAX_BODY_BYTES",
    "MAX_CODES",
    "MAX_CONNECTIONS",
    "MAX_ERRORS",
    "MAX_ERROR_CHARACTERS",
    "MAX_EVENT_BYTES",
    "MAX_FEED_PEERS",
    "MAX_FEED_RANGES",
    "MAX_FETCH_SECONDS",
    "MAX_HEADERS",
    "MAX_HEAD_BYTES",
    "MAX_LENGTH_DIGITS",
    "MAX_LINKS",
    "MAX_OBJECTS",
    "MAX_OFFSET",
    "MAX_OPEN_BODY_BYTES",
    "MAX_OPEN_REFUSED_BYTES",
    "MAX_QUERY_FIELDS",
    "MAX_REFUSED_BYTES",
    "MAX_SEQ",
    "MAX_SYNCED_PEERS",
    "MAX_SYNCED_SECONDS",
    "MAX_TARGET_BYTES",
    "MAX_VALUES",
    "MAX_WAITING_BYTES",
    "OBJECTS_PAGE_BYTES",
    "PAGE_BYTES",
    "PAGE_VALUES",
    "REQUESTS_PER_TURN",
    "SESSION_SECONDS",
    "SHARED_SECONDS",
    "SILENT_SECONDS",
    "SLICE_BYTES",
    "SLICE_VALUES",
    "TURN_SECONDS",
]

# Connections

MAX_CONNECTIONS: Final = 256
"""Connections over TCP, which any user of this machine may open; watches are among them. One more
ends the oldest on which no request had the token or a session; where all had, it is refused. Those
of the control socket are its owner's, and not counted."""

BACKLOG: Final = 128
"""Connections that wait to be taken, at either place."""

IDLE_SECONDS: Final = 600
"""A connection on which nothing is asked is closed after this long: longer than a person takes
between two commands of a program that keeps it."""

HEAD_SECONDS: Final = 10.0
"""What the request line and the headers may take from their first byte on. Without the token or a
session it is all that a connection has, from its begin to the end of its one answer."""

MAX_HEAD_BYTES: Final = 16_384
"""The request line and the headers together. Until a line is whole, each part of it that comes
costs a copy of what is there."""

MAX_HEADERS: Final = 100
"""Headers of a request; browsers send some 20. One costs about 2.5 µs."""

MAX_LENGTH_DIGITS: Final = 15
"""Digits of a Content-Length: more than any body has, and few enough to be read as a number."""

MAX_TARGET_BYTES: Final = 8_192
"""Where our clients write a range into the path; a longer one goes into the body of a POST."""

REQUESTS_PER_TURN: Final = 64
"""Parts of requests, of at most 64 KiB each, that are read in one turn of the reactor. TCP and the
control socket are counted apart."""

TURN_SECONDS: Final = 0.01
"""How long a turn reads them: others have theirs before the 50 ms are over. A strange request takes
about 0.3 ms."""

MAX_QUERY_FIELDS: Final = 16
"""Parameters of a query; no path knows more than four."""

# Bodies

MAX_BODY_BYTES: Final = 2_097_152
"""A request's body: room for the longest value in hex (512 KiB) and for a batch of thousands of
shorter ones; parsed in some 20 ms."""

MAX_OPEN_BODY_BYTES: Final = 4_096
"""The same of a request without a token: the code of a session, and no more."""

MAX_OPEN_REFUSED_BYTES: Final = 2 * 1024 * 1024
"""A body without a token is read up to here and dropped, so that who sent a wrong one can read the
answer. It must say its length: chunks cost more to read than to send."""

MAX_REFUSED_BYTES: Final = 64 * MAX_BODY_BYTES
"""A body that is too large is read up to here and dropped, so that its sender can read the answer;
then the connection is cut."""

# Who may

MAX_CODES: Final = 32
"""Codes of links to the status page that wait to be used. Only who holds the token, or may use the
control socket, can ask for more; the oldest are dropped."""

CODE_SECONDS: Final = 120.0
"""How long one waits: it is for the browser that is opened now."""

SESSION_SECONDS: Final = 43_200.0
"""A working day; the page then asks to be opened anew. A session takes no room in the node, so
their number has no limit: each is from a code."""

# What one request may name

MAX_VALUES: Final = 10_000
"""Values of one request, and entries of one page: some 20 ms of work."""

MAX_FEED_PEERS: Final = 64
"""Addresses that a feed's settings may name; each is dialled for as long as the node runs."""

MAX_FEED_RANGES: Final = 64
"""Ranges that a feed's settings may name; each value that arrives is compared with all of them."""

MAX_LINKS: Final = 64
"""Links of a chain that is given. A chain that holds has at most 5; some more are let in, so that
the chain's own check says what is wrong."""

LATEST_EXPIRY: Final = 253_402_300_799
"""The end of the year 9999 in seconds since 1970: a later expiry is a slip, and no date can show
it."""

MAX_SYNCED_PEERS: Final = 64
"""Peers that one call may wait for to be in sync."""

MAX_SYNCED_SECONDS: Final = 86_400.0
"""How long such a call may wait: a first sync over a slow line takes hours, not days."""

MAX_FETCH_SECONDS: Final = 300.0
"""How long peers may be asked for a range."""

MAX_OFFSET: Final = 1_000_000
"""Peers that a page may pass over: far more than a node can have."""

MAX_SEQ: Final = 2**64 - 1
"""The last arrival number that the store can hold."""

# What one answer holds

PAGE_VALUES: Final = 1_000
"""Values of a page where the client names no number."""

PAGE_BYTES: Final = 1_048_576
"""Bytes of the values of a page, written as hex in some 5 ms; a single longer value still makes a
page."""

MAX_COUNTED: Final = 1_000_000
"""Values of a range that one request counts, in some 0.3 s: the next one goes on behind them, so a
client that goes away leaves little to be done."""

COUNT_SLICE: Final = 20_000
"""What is counted in one turn of a thread, in some 10 ms."""

MAX_OBJECTS: Final = 1_000
"""Objects of a page, as long as they are small."""

OBJECTS_PAGE_BYTES: Final = 262_144
"""The same in bytes of JSON, read and written in some 10 ms: a page ends with the object that
reaches it, and one object takes up to 64 KiB on disk."""

# Watches

KEEP_ALIVE_SECONDS: Final = 5.0
"""A comment this often lets both sides of a watch notice that the other is gone."""

SLICE_VALUES: Final = 1_000
"""What a watch reads of the arrival log in one turn, and all it holds for a slow reader: turned
into text and handed to the transport in a few milliseconds."""

SLICE_BYTES: Final = 262_144
"""The same in bytes of the values."""

MAX_WAITING_BYTES: Final = 4_194_304
"""Events about objects that wait for a slow reader, who is told beyond it that it has missed
something. There is no log of them to read again: what waits is memory."""

FRAME_SECONDS: Final = 2.0
"""Each reader of the status page is sent a frame this often: how the node stands."""

SHARED_SECONDS: Final = 1.0
"""A frame is made once for all readers of the status page, and sent for this long."""

# What is remembered of the last days

HISTORY_MINUTES: Final = 360
"""Rows of figures by the minute: six hours. A row is 8 bytes a figure, of 7 figures of the node and
3 of each feed: 20 KB, and 9 KB for a feed."""

HISTORY_TENS: Final = 1_008
"""Rows of figures by ten minutes: a week. 56 KB, and 24 KB for a feed."""

HISTORY_FEEDS: Final = 32
"""Feeds of which figures are kept, the first ones of the node: 1.1 MB for all, which is copied once
an hour in some milliseconds. Of the others the page has what is now."""

# The last errors

MAX_ERRORS: Final = 50
"""Warnings and errors of the log that are kept to be shown, more than fit a screen. A peer can
bring warnings about: the oldest go, and the log has them all."""

MAX_ERROR_CHARACTERS: Final = 300
"""One of them: one sentence. What is longer holds a traceback or somebody's data."""

# What clients take of whoever answers them

MAX_EVENT_BYTES: Final = 2_097_152
"""Text of a watch that a client keeps while an event is not complete: the longest value in hex, or
an object before and after a change, and more."""

SILENT_SECONDS: Final = 30.0
"""A node sends a comment every 5 seconds to who watches; a longer silence means that it hangs."""
