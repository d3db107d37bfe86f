"""The status page: how it is served, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace

import pytest
from chromium import opened
from crowd import Crowded
from fake_node import a_peer
from serving import ServedOverTcp
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import Logger, LogLevel, LogPublisher
from twisted.web.http_headers import Headers

from hyperbloom.api.endpoints.status_page import CONTENT_SECURITY_POLICY, SCRIPTS
from hyperbloom.api.endpoints.status_stream import (
    ANSWER_SECONDS,
    StatusFrames,
    StatusReader,
    step,
)
from hyperbloom.api.limits import (
    FRAME_SECONDS,
    MAX_ERROR_CHARACTERS,
    MAX_ERRORS,
    SHARED_SECONDS,
)
from hyperbloom.api.monitoring.recent_errors import RecentErrors
from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.status import SyncRound
from hyperbloom.trust import issue_link

WIDTHS = {"desktop": (1280, 900, False), "phone": (390, 844, True)}
FEEDS, PEERS = 100, 1_000
PUT = '{"values": ["61"]}'
#: Counts the elements that are put into the page from now on.
COUNT_ELEMENTS = """
globalThis.made = 0;
new MutationObserver((changes) => {
  for (const node of changes.flatMap((one) => [...one.addedNodes]))
    if (node.nodeType === 1) made += 1 + node.querySelectorAll("*").length;
}).observe(document.body, { childList: true, subtree: true });
true
"""


# Served


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/status.css", "text/css"),
        *((f"/scripts/{name}", "text/javascript") for name in SCRIPTS),
    ],
)
def test_the_files_need_no_token_and_may_do_little(over_tcp, path, kind):
    status, head, body = over_tcp.ask_tcp(path, headers={"Sec-Fetch-Site": "cross-site"})
    assert (status, head["Content-Type"]) == (200, f"{kind}; charset=utf-8")
    assert head["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert head["X-Frame-Options"] == "DENY"
    text = body.decode()
    assert over_tcp.node.identity.public_key.hex() not in text
    own = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?://|//[a-z]+\.|innerHTML|eval\(", own)
    assert over_tcp.ask_tcp(path, headers={"Host": "evil.example"})[0] == 403


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere():
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; ")
    for word in ("unsafe", "*", "http", "data:"):
        assert word not in CONTENT_SECURITY_POLICY


# Live


def frames(connection, number):
    """The next frames of an open /v1/live."""
    found = []
    while len(found) < number:
        line = connection.fp.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    return found


def test_a_frame_holds_what_the_page_shows(over_tcp):
    connection = over_tcp.tcp_connection()
    over_tcp.node.connected = [
        a_peer(over_tcp.node.own.key, last_sync_sent=time.time() - 60),
        a_peer(
            over_tcp.node.own.key,
            last_sync_sent=None,
            in_sync=None,
            in_sync_at=None,
            last_round=None,
        ),
    ]
    connection.request("GET", "/v1/live", headers={"Authorization": f"Bearer {over_tcp.token}"})
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    first, second = frames(response, 2)
    assert second["at"] > first["at"]
    own = over_tcp.node.own.key.hex()
    assert [feed["key"] for feed in first["status"]["feeds"]] == [own]
    assert first["steps"][own]["peers"] == 2
    assert first["steps"][own]["in_step"] == 1
    assert first["errors"] == []
    connection.close()


class RecordingRequest:
    """As much of a request as a reader of frames needs."""

    def __init__(self):
        self.responseHeaders = Headers()
        self.written = []
        self.gone = Deferred()

    def notifyFinish(self):
        return self.gone

    def registerProducer(self, producer, streaming):
        self.producer = producer

    def write(self, data):
        self.written.append(data)


class NumberedFrames:
    """Frames that count how often they were asked for."""

    asked = 0

    def newest(self):
        self.asked += 1
        return b"%d" % self.asked


def test_a_reader_that_is_behind_is_sent_nothing_but_the_newest_frame():
    clock, request, frames = Clock(), RecordingRequest(), NumberedFrames()
    call = SimpleNamespace(
        request=request, context=SimpleNamespace(clock=clock, status_frames=frames)
    )
    StatusReader(call).begin()
    assert request.written == [b"1"]
    request.producer.pauseProducing()
    for _ in range(100):
        clock.advance(FRAME_SECONDS)
    assert request.written == [b"1"]
    assert frames.asked == 1
    request.producer.resumeProducing()
    clock.advance(FRAME_SECONDS)
    assert request.written == [b"1", b"2"]
    request.gone.callback(None)
    assert not clock.getDelayedCalls()


def frames_of(node, clock):
    return StatusFrames(node, discovery=None, objects=None, recent=None, arrived=dict, clock=clock)


def test_readers_share_a_frame(over_tcp):
    frames = frames_of(over_tcp.node, clock := Clock())
    first = frames.newest()
    over_tcp.client().put([b"a"])
    assert frames.newest() is first
    clock.advance(SHARED_SECONDS)
    assert json.loads(frames.newest().split(b"data: ")[1])["status"]["feeds"][0]["count"] == 1


def test_a_frame_grows_with_the_feeds_and_not_with_the_peers(crowded):
    frames = frames_of(crowded.node, clock := Clock())
    first = len(frames.newest())
    assert first < FEEDS * 1_000
    crowded.node.connected *= 10
    clock.advance(SHARED_SECONDS)
    # The figures have a digit more.
    assert first < len(frames.newest()) < first + FEEDS * 4


def test_how_a_peer_stands():
    def stands(**fields):
        compared = {"in_sync": None, "in_sync_at": None, "last_round": None}
        return step(a_peer(bytes(32), **(compared | fields)), now=1_000.0)

    assert stands(last_sync_sent=None) == "asking"
    assert stands(last_sync_sent=1_000.0 - ANSWER_SECONDS / 2) == "asking"
    assert stands(last_sync_sent=990.0) == "in-step"
    assert stands(last_sync_sent=990.0, last_new=989.0) == "in-step"
    assert stands(last_sync_sent=990.0, last_new=990.5) == "receiving"
    # Equal nodes compare digests, and send no Sync.
    assert stands(last_sync_sent=None, in_sync=True, in_sync_at=995.0) == "in-step"
    later = {"last_sync_sent": 990.0, "last_new": 996.0}
    assert stands(**later, in_sync=True, in_sync_at=995.0) == "receiving"
    assert stands(last_sync_sent=None, in_sync=False, in_sync_at=995.0) == "asking"
    # A try by symbols asks, too.
    asked = SyncRound(way="sketch", at=990.0, symbols=1, bytes=2, differences=3)
    assert stands(last_sync_sent=None, last_round=asked) == "in-step"
    assert stands(last_sync_sent=None, last_round=asked, last_new=991.0) == "receiving"
    assert stands(last_sync_sent=999.0, last_round=asked, last_new=991.0) == "asking"


def test_the_last_errors_are_kept_and_no_more():
    publisher, recent = LogPublisher(), RecentErrors()
    publisher.addObserver(recent)
    log = Logger(observer=publisher, namespace="part")
    log.info("nothing")
    log.warn("first {n}", n=1)
    try:
        raise ValueError("secret")
    except ValueError:
        log.failure("It failed")
    assert [one["text"] for one in recent.newest()] == ["It failed: ValueError", "first 1"]
    assert recent.newest()[1]["level"] == LogLevel.warn.name
    assert recent.newest()[1]["source"] == "part"
    for n in range(MAX_ERRORS + 1):
        log.error("x" * (MAX_ERROR_CHARACTERS + 1) + "{n}", n=n)
    assert len(recent.newest()) == MAX_ERRORS
    assert {len(one["text"]) for one in recent.newest()} == {MAX_ERROR_CHARACTERS}


# In a browser


@pytest.fixture
def crowded(reactor_thread):
    served = Crowded(reactor_thread, feeds=FEEDS, peers=PEERS)
    yield served
    served.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_with_a_thousand_peers_and_a_hundred_feeds(chromium, crowded, tmp_path, width):
    wide, high, mobile = WIDTHS[width]
    chromium.size(wide, high, mobile=mobile)
    opened(chromium, crowded)
    assert chromium.eval("document.querySelectorAll('#feeds tbody tr').length") == 100
    chromium.wait("document.querySelectorAll('#peers tbody tr').length === 50")
    chromium.wait("document.querySelectorAll('#graph circle').length > 20")
    assert chromium.eval("location.hash") == ""
    # Nothing is wider than the window: what is wide scrolls in a box of its own.
    assert chromium.eval("document.documentElement.scrollWidth <= innerWidth")
    # What is kept is kept: a frame makes the list of errors anew, and not the tables or the graph,
    # of which a part is drawn.
    assert chromium.eval("document.querySelectorAll('#graph circle').length") < PEERS * 0.6
    chromium.eval(COUNT_ELEMENTS)
    before = chromium.eval("Number(document.body.dataset.frames)")
    # Long enough that peers and members are asked for, too.
    chromium.wait(f"document.body.dataset.frames >= {before + 4}")
    drawn, made = chromium.eval("[Number(document.body.dataset.frames), globalThis.made]")
    assert 0 < made <= 100 * (drawn - before)
    chromium.picture(tmp_path / f"{width}.png")
    assert chromium.complaints() == []
    assert all(url.startswith(crowded.url) for url in chromium.requests())


def test_what_a_person_does(chromium, crowded):
    chromium.size(1280, 900)
    opened(chromium, crowded)
    chromium.eval(
        "$f = document.querySelector('#filter'); $f.value = 'sight'; "
        "$f.dispatchEvent(new Event('input')); true"
    )
    assert chromium.eval(
        "[...document.querySelectorAll('#feeds tbody tr')].map((r) => r.cells[0].textContent)"
    ) == ["sightings"]
    chromium.wait("document.querySelectorAll('#peers tbody tr').length === 50")
    chromium.eval("document.querySelector('#after').click()")
    chromium.wait("document.querySelector('#shown').textContent.startsWith('51 to 100 of 9')")
    chromium.wait("!!document.querySelector('#graph .more')")
    circles = chromium.eval("document.querySelectorAll('#graph circle').length")
    chromium.eval("document.querySelector('#graph .more').dispatchEvent(new Event('click'))")
    assert chromium.eval("document.querySelectorAll('#graph circle').length") > circles
    title = chromium.eval("document.querySelector('#graph .own title').textContent")
    assert "introduced by" in title
    assert "until" in title
    chromium.eval("document.querySelector('#feeds tbody tr').click()")
    chromium.wait("document.querySelector('#feed-name').textContent.startsWith('sightings')")


def test_peers_that_go_take_no_page_with_them(chromium, crowded):
    opened(chromium, crowded)
    chromium.wait("document.querySelector('#shown').textContent.startsWith('1 to 50 of 9')")
    assert chromium.eval("document.querySelector('#pages').offsetHeight > 0")
    chromium.eval("document.querySelector('#after').click()")
    chromium.wait("document.querySelector('#shown').textContent.startsWith('51 to 100 of 9')")
    crowded.node.connected = crowded.node.connected[:9]
    chromium.wait("document.querySelectorAll('#peers tbody tr').length === 8")
    # Where one page holds all of them, there is nothing to turn.
    assert chromium.eval("document.querySelector('#pages').offsetHeight") == 0


def test_what_is_protected_is_seen(chromium, over_tcp):
    own = over_tcp.node.own.key
    over_tcp.node.connected = [
        a_peer(own, address=f"192.0.2.{number}:4365", id=bytes([number]) * 32, protected=number > 0)
        for number in range(3)
    ]
    opened(chromium, over_tcp)

    def column(table):
        place = f"[...document.querySelectorAll('#{table} th')].findIndex("
        place += "(th) => th.textContent === 'protected')"
        rows = f"[...document.querySelectorAll('#{table} tbody tr')]"
        return f"{rows}.map((row) => row.cells[{place}].textContent)"

    tiles = "[...document.querySelectorAll('#glance div')].map((one) => one.textContent)"
    assert "protected2 of 3" in chromium.eval(tiles)
    assert chromium.eval(column("feeds")) == ["2 of 3"]
    chromium.wait("document.querySelectorAll('#peers tbody tr').length === 3")
    assert chromium.eval(column("peers")) == ["no", "yes", "yes"]
    over_tcp.node.connected = over_tcp.node.connected[1:]
    chromium.wait(f"{column('feeds')}[0] === 'all'")
    assert "protected2 of 2" in chromium.eval(tiles)
    over_tcp.node.connected = []
    chromium.wait(f"{column('feeds')}[0] === '–'")


def test_the_page_follows_the_node(chromium, over_tcp):
    over_tcp.node.refusals = ()
    opened(chromium, over_tcp)
    # The fake's feed has the node's own key, which is the one thing to say.
    errors = chromium.eval("document.querySelector('#errors').textContent")
    assert errors.startswith("nowown: its key is the node's own, so whoever knows the node's")
    cell = "document.querySelector('#feeds tbody tr').cells"
    assert chromium.eval(f"{cell}[1].textContent") == "0"
    over_tcp.client().put([b"<img src=x onerror=alert(1)>", b"b"])
    chromium.wait(f"{cell}[1].textContent === '2'")
    chromium.wait(f"{cell}[2].textContent !== '0/s'")
    over_tcp.node.problem = "<b>no peer</b>"
    chromium.wait("document.querySelector('#errors').textContent.includes('<b>no peer</b>')")
    assert chromium.eval("document.querySelectorAll('#errors b').length") == 0
    assert chromium.complaints() == []


@pytest.mark.parametrize(("days", "is_told"), [(6.5, True), (7.5, False)])
def test_the_page_says_when_a_link_ends_soon(chromium, over_tcp, days, is_told):
    node, owner = over_tcp.node, Identity(b"o" * 32)
    node.add(FeedSettings(key=owner.public_key, alias="words"))
    expires = time.time() + days * 86_400
    link = issue_link(owner, node.identity.public_key, expires=expires, nonce=bytes(32))
    node.feeds[owner.public_key]._learn(owner.public_key, link)
    opened(chromium, over_tcp)
    errors = chromium.eval("document.querySelector('#errors').textContent")
    sentence = "words: this node may write for 6 d more; have its link renewed by who invited it"
    assert (sentence in errors) == is_told
    assert ("may write for" in errors) == is_told
    assert chromium.complaints() == []


class ShownPool:
    """What the page needs of a pool: a form."""

    def __init__(self):
        peer = {"address": "127.0.0.1:6000", "outgoing": True, "kin": False, "since": 1.0}
        peer |= {"messages_in": 7, "messages_out": 9, "untyped": 0, "latency": None}
        peer |= {"untold": 3, "untold_why": "<b>2199023255552</b> is beyond 32 bits"}
        self.form = {"count": 2, "bytes": 90, "digest": "ab" * 32, "clashes": 0, "listening": []}
        self.form |= {"encrypted": True, "problems": [], "peers": [peer], "closings": []}
        self.form |= {"types": ["Person(String name, int age)", "Pair(int left, int right)"]}

    def status(self):
        return self

    def as_json(self):
        return self.form


def test_the_page_shows_the_pool_its_types_and_what_is_left_out(chromium, reactor_thread, tmp_path):
    pool = ShownPool()
    served = ServedOverTcp(reactor_thread, objects=pool)
    try:
        chromium.size(1280, 900)
        opened(chromium, served)
        rows = "[...document.querySelectorAll('#types tbody tr')].map((r) => r.innerText)"
        assert chromium.eval(rows) == ["Person\tString name, int age", "Pair\tint left, int right"]
        peers = chromium.eval("document.querySelector('#pool-peers tbody').innerText")
        assert peers.split("\t")[:3] == ["127.0.0.1:6000", "out", "another"]
        assert peers.endswith("3")
        assert "<b>2199023255552</b> is" in chromium.eval(
            "document.querySelector('#errors').innerText"
        )
        assert chromium.eval("document.querySelector('#no-types').hidden")
        chromium.picture(tmp_path / "pool.png")
        pool.form = {**pool.form, "types": []}
        chromium.wait("!document.querySelector('#no-types').hidden")
        chromium.size(390, 844, mobile=True)
        assert chromium.eval("document.documentElement.scrollWidth <= innerWidth")
        chromium.picture(tmp_path / "phone.png")
        assert chromium.complaints() == []
    finally:
        served.close()


def test_without_a_code_the_page_says_how_to_come_in(chromium, over_tcp):
    chromium.go(f"{over_tcp.url}/#" + "x" * 43)
    chromium.wait("document.querySelector('#door')?.hidden === false")
    assert "hyperbloom status --web" in chromium.eval("document.querySelector('#door').innerText")
    assert "used already" in chromium.eval("document.querySelector('#why').textContent")
    assert chromium.eval("document.querySelector('#all').hidden")


def test_a_page_of_another_origin_cannot_use_the_api(chromium, over_tcp, reactor_thread):
    """The other origin is another port; even with the token it gets nowhere."""
    other = ServedOverTcp(reactor_thread)
    try:
        opened(chromium, other)
        get = f"fetch('{over_tcp.url}/v1/status'"
        with_token = f"{get}, {{ headers: {{ Authorization: 'Bearer {over_tcp.token}' }} }})"
        # What a form may send, too: no leave is asked for, and the answer is not to be read.
        put = f"fetch('{over_tcp.url}/v1/feeds/-/values', {{ method: 'POST', body: '{PUT}'"
        put_with_token = f"{put}, headers: {{ Authorization: 'Bearer {over_tcp.token}' }} }})"
        # The page's own policy is in the way already; this is about the server's side.
        chromium.send("Page.setBypassCSP", enabled=True)
        chromium.go(f"{other.url}/")
        chromium.wait("document.readyState === 'complete'")
        for request in (
            f"{get})",
            f"{get}, {{ mode: 'no-cors' }})",
            with_token,
            f"{put}, mode: 'no-cors' }})",
            put_with_token,
        ):
            outcome = chromium.eval(
                f"{request}.then(async (r) => r.type + (await r.text()), (e) => String(e))"
            )
            assert over_tcp.node.identity.public_key.hex() not in outcome
            assert outcome == "opaque" or "TypeError" in outcome
        assert over_tcp.node.calls == []
        # The same requests from no page at all.
        assert over_tcp.ask_tcp("/v1/feeds/-/values", "POST", PUT.encode())[0] == 401
        token = over_tcp.token
        assert over_tcp.ask_tcp("/v1/feeds/-/values", "POST", PUT.encode(), token=token)[0] == 200
        assert [call[0] for call in over_tcp.node.calls] == ["insert"]
    finally:
        chromium.send("Page.setBypassCSP", enabled=False)
        other.close()
