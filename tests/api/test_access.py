"""The API over TCP: tokens, sessions, and what pages of others may not do."""

from __future__ import annotations

import errno
import itertools
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.logger import LogLevel, globalLogPublisher
from twisted.web.http_headers import Headers

from hyperbloom.addresses import Address
from hyperbloom.api.http import channel
from hyperbloom.api.http.access import Access, Rights, load_token
from hyperbloom.api.limits import (
    CODE_SECONDS,
    MAX_CODES,
    MAX_CONNECTIONS,
    MAX_OPEN_BODY_BYTES,
    SESSION_SECONDS,
)
from hyperbloom.api.problems import PROBLEM_MEDIA_TYPE, Problem, ProblemKind
from hyperbloom.api.routes import ROUTES
from hyperbloom.client.client import Client
from hyperbloom.config import ConfigError, parse_config
from hyperbloom.passphrase import PassphraseError

TOKEN = "ab" * 32
#: Makes a token, and ends at the first call by which the files change after as many others.
KILLED = """
import os, sys
from pathlib import Path
from hyperbloom.api.http.access import load_token
left = int(sys.argv[2])
def hook(name, arguments):
    global left
    if name in ("open", "os.link", "os.remove"):
        left -= 1
        if left < 0:
            os._exit(1)
sys.addaudithook(hook)
load_token(Path(sys.argv[1]))
"""


class Seconds:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def guard(seconds, *, port=4366, token=TOKEN, **more):
    address = Address("127.0.0.1", port)
    return Access(address, token, clock=seconds, now=seconds, **more)


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def access(seconds):
    return guard(seconds)


def headers(**given):
    found = Headers({"host": ["127.0.0.1:4366"]})
    for name, values in given.items():
        found.setRawHeaders(name.replace("_", "-"), values)
    return found


def refusal(access, **given):
    with pytest.raises(Problem) as caught:
        access.rights(headers(**given))
    return caught.value.kind


# The guard


def test_the_token_may_everything(access):
    assert access.rights(headers(authorization=[f"Bearer {TOKEN}"])) is Rights.ALL
    assert access.rights(headers(authorization=[f"bearer  {TOKEN} "])) is Rights.ALL
    assert access.rights(headers()) is Rights.NONE


def test_the_token_for_metrics_may_read_these_alone(seconds):
    metrics = "5a" * 32
    access = guard(seconds, metrics_token=metrics)
    assert access.rights(headers(authorization=[f"Bearer {metrics}"])) is Rights.METRICS
    assert access.rights(headers(authorization=[f"Bearer {TOKEN}"])) is Rights.ALL
    assert refusal(access, authorization=[f"Bearer {metrics}0"]) is ProblemKind.UNAUTHORIZED
    needing = {route.path for route in ROUTES if Rights.NONE < route.needs <= Rights.METRICS}
    assert needing == {"/metrics"}


@pytest.mark.parametrize(
    "given",
    [
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN}0"],
        ["Bearer "],
        [b"Bearer \xff"],
        [f"Basic {TOKEN}"],
        [TOKEN],
        [f"Bearer {TOKEN}", f"Bearer {TOKEN}"],
    ],
)
def test_any_other_token_is_refused(access, given):
    assert refusal(access, authorization=given) is ProblemKind.UNAUTHORIZED


@pytest.mark.parametrize(
    "host", ["127.0.0.1:4366", "localhost:4366", "[::1]:4366", "LOCALHOST:4366"]
)
def test_names_of_this_machine_are_its_hosts(access, host):
    assert access.rights(headers(host=[host])) is Rights.NONE


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["127.0.0.1:80"],
        ["evil.example:4366"],
        ["127.0.0.1.evil.example:4366"],
        ["127.0.0.1:4366", "127.0.0.1:4366"],
    ],
)
def test_another_name_for_this_machine_is_refused_even_with_the_token(access, hosts):
    """So does a page that reaches us by DNS rebinding."""
    given = {"host": hosts, "authorization": [f"Bearer {TOKEN}"]}
    assert refusal(access, **given) is ProblemKind.FORBIDDEN


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://127.0.0.1:4366", "http://127.0.0.1:4367", "file://"],
)
def test_pages_of_other_origins_are_refused(access, origin):
    given = {"origin": [origin], "authorization": [f"Bearer {TOKEN}"]}
    assert refusal(access, **given) is ProblemKind.FORBIDDEN


def test_our_own_page_is_not(access):
    given = {"origin": ["http://127.0.0.1:4366"], "authorization": [f"Bearer {TOKEN}"]}
    assert access.rights(headers(**given)) is Rights.ALL


def test_port_80_is_not_named(seconds):
    access = guard(seconds, port=80)
    assert access.rights(headers(host=["localhost"])) is Rights.NONE


# Sessions


def bearer(token):
    return headers(authorization=[f"Bearer {token}"])


def test_a_code_gives_one_session_that_may_read(access):
    code = access.issue_code()
    session = access.claim(code)
    assert access.rights(bearer(session)) is Rights.READ
    with pytest.raises(Problem, match="used already or is too old"):
        access.claim(code)
    assert refusal(access, authorization=[f"Bearer {code}"]) is ProblemKind.UNAUTHORIZED


def test_codes_and_sessions_end(access, seconds):
    late, code = access.issue_code(), access.issue_code()
    session = access.claim(code)
    seconds.now += CODE_SECONDS
    with pytest.raises(Problem, match="too old"):
        access.claim(late)
    seconds.now += SESSION_SECONDS - CODE_SECONDS - 1
    assert access.rights(bearer(session)) is Rights.READ
    seconds.now += 1
    assert refusal(access, authorization=[f"Bearer {session}"]) is ProblemKind.UNAUTHORIZED


def test_one_code_more_than_may_wait_drops_the_oldest(access):
    codes = [access.issue_code() for _ in range(MAX_CODES + 1)]
    with pytest.raises(Problem):
        access.claim(codes[0])
    assert access.claim(codes[1])


def test_a_session_ends_with_its_process(access, seconds):
    """Whoever has got hold of one is cut off by a restart, with the same token or a new one."""
    session, code = access.claim(access.issue_code()), access.issue_code()
    for other in (guard(seconds), guard(seconds, token="cd" * 32)):
        assert refusal(other, authorization=[f"Bearer {session}"]) is ProblemKind.UNAUTHORIZED
        with pytest.raises(Problem, match="used already or is too old"):
            other.claim(code)
    assert access.rights(bearer(session)) is Rights.READ


def test_no_part_of_a_session_can_be_changed(access, seconds):
    session = access.claim(access.issue_code())
    end, nonce, proof = session.split(".")
    later = str(int(end) + 1)
    forged = [
        f"{later}.{nonce}.{proof}",
        f"{end}.{nonce}x.{proof}",
        f"{end}.{nonce}.{proof[:-1]}",
        f"{end}.{nonce}.",
        f"{end}.{nonce}",
        f".{proof}",
        f"x.{nonce}.{proof}",
        session.upper(),
        session + "\xff",
    ]
    for text in forged:
        assert refusal(access, authorization=[f"Bearer {text}"]) is ProblemKind.UNAUTHORIZED, text


def test_a_session_of_a_clock_that_was_wrong_does_not_hold_for_years(access, seconds):
    seconds.now += 365 * 86_400
    session = access.claim(access.issue_code())
    seconds.now -= 365 * 86_400
    assert refusal(access, authorization=[f"Bearer {session}"]) is ProblemKind.UNAUTHORIZED


# The token's file


def test_the_token_is_made_once_and_for_its_owner_only(tmp_path):
    path = tmp_path / "api.token"
    before = os.umask(0)
    try:
        token = load_token(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(bytes.fromhex(token)) == 32
    assert load_token(path) == token


def test_a_token_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "api.token"
    load_token(path)
    path.chmod(0o640)
    with pytest.raises(PassphraseError, match=r"the token file .* is open to others"):
        load_token(path)
    with pytest.raises(PassphraseError, match=r"cannot be made \(No such file"):
        load_token(tmp_path / "none" / "api.token")


@pytest.mark.parametrize("failing", ["fsync", "link"])
def test_a_token_that_cannot_be_written_leaves_nothing_that_stops_the_next_start(
    tmp_path, monkeypatch, failing
):
    def full(*_given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(PassphraseError, match="No space left"):
            load_token(tmp_path / "api.token")
    assert list(tmp_path.iterdir()) == []
    assert load_token(tmp_path / "api.token")


def test_a_token_is_made_whole_or_not_at_all(tmp_path):
    """A process that ends after any number of its system calls leaves one that the next can use."""
    for calls in itertools.count():
        folder = tmp_path / str(calls)
        folder.mkdir()
        program = [sys.executable, "-c", KILLED, str(folder / "api.token"), str(calls)]
        done = subprocess.run(program, timeout=240, check=False)
        assert len(load_token(folder / "api.token")) == 64
        if done.returncode == 0:
            break
    assert calls >= 4


# The configuration


def config(text):
    return parse_config(text, path=Path("/srv/node/hyperbloom.toml"))


def test_it_is_off_unless_it_is_set():
    assert config("").api.listen is None
    settings = config('[node]\ndata = "d"\n[api]\nlisten = "127.0.0.1:4366"\n').api
    assert settings.listen == ("127.0.0.1", 4366)
    assert str(settings.token) == "/srv/node/d/api.token"
    assert config('[api]\nlisten = "[::1]:1"\ntoken = "/run/t"\n').api.listen == ("::1", 1)


@pytest.mark.parametrize("listen", ["0.0.0.0:4366", "192.0.2.1:1", "example.org:1", "[::]:1"])
def test_only_loopback_is_listened_on(listen):
    with pytest.raises(ConfigError, match=r"\[api\] listen: .* is no loopback address"):
        config(f'[api]\nlisten = "{listen}"\n')


@pytest.mark.parametrize("text", ['listen = "4366"', 'token = ""', "port = 1", "listen = 1"])
def test_other_slips_in_the_table_are_refused(text):
    with pytest.raises(ConfigError, match=r"\[api\]"):
        config(f"[api]\n{text}\n")


# Over the wire


def test_without_a_token_nothing_is_told(over_tcp):
    status, head, body = over_tcp.ask_tcp("/v1/status")
    assert status == 401
    assert head["WWW-Authenticate"] == "Bearer"
    assert head["Content-Type"] == PROBLEM_MEDIA_TYPE
    assert over_tcp.node.identity.public_key.hex() not in body.decode()
    assert over_tcp.ask_tcp("/v1/feeds/-/values", "POST", {"values": ["61"]})[0] == 401
    assert not over_tcp.node.calls


def test_with_the_token_all_is(over_tcp):
    assert over_tcp.ask_tcp("/v1/status", token=over_tcp.token)[0] == 200
    with Client.over_tcp(f"127.0.0.1:{over_tcp.port}", over_tcp.token_path, timeout=240) as client:
        assert client.put([b"a", b"b"])["new"] == 2
        assert list(client.range()) == [b"a", b"b"]
        arrivals = itertools.islice(client.watch(after=0), 3)
        assert [one and one.value for one in arrivals] == [None, b"a", b"b"]


def test_the_wrong_host_or_origin_is_refused(over_tcp):
    for given in (
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        status, _, body = over_tcp.ask_tcp("/v1/status", token=over_tcp.token, headers=given)
        assert (status, json.loads(body)["type"]) == (403, "urn:hyperbloom:problem:forbidden")
    own = {"Origin": over_tcp.url, "Sec-Fetch-Site": "same-origin"}
    assert over_tcp.ask_tcp("/v1/status", token=over_tcp.token, headers=own)[0] == 200


def test_no_leave_is_given_to_pages_of_others(over_tcp):
    asked = {
        "Origin": "http://evil.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    status, head, _ = over_tcp.ask_tcp("/v1/status", "OPTIONS", headers=asked)
    assert status == 403
    for given in (head, over_tcp.ask_tcp("/v1/status", token=over_tcp.token)[1]):
        assert not [name for name in given if name.lower().startswith("access-control")]
        assert given["X-Content-Type-Options"] == "nosniff"
        assert given["Cross-Origin-Resource-Policy"] == "same-origin"
        assert given["Cache-Control"] == "no-store"


def test_a_browsers_way_to_its_session(over_tcp):
    offer = over_tcp.client().offer_session()
    assert offer["url"] == f"{over_tcp.url}/#{offer['code']}"
    status, _, body = over_tcp.ask_tcp("/v1/sessions/claim", "POST", {"code": offer["code"]})
    assert status == 201
    session = json.loads(body)["token"]
    assert over_tcp.ask_tcp("/v1/status", token=session)[0] == 200
    assert over_tcp.ask_tcp("/v1/sessions/claim", "POST", {"code": offer["code"]})[0] == 401
    for path, form in (
        ("/v1/feeds/-/values", {"values": ["61"]}),
        ("/v1/sessions", {}),
        ("/v1/snapshots", {"target": "/nowhere/x"}),
    ):
        assert over_tcp.ask_tcp(path, "POST", form, token=session)[0] == 403
    assert not over_tcp.node.calls


def test_a_session_is_not_offered_without_a_port(served):
    with pytest.raises(Problem, match="no TCP port for browsers") as caught:
        served.client().offer_session()
    assert caught.value.kind is ProblemKind.CONFLICT


def test_a_body_without_a_token_is_bounded(over_tcp):
    claim = "/v1/sessions/claim"
    fits = json.dumps({"code": "x" * (MAX_OPEN_BODY_BYTES - 12)}).encode()
    assert len(fits) == MAX_OPEN_BODY_BYTES
    assert over_tcp.ask_tcp(claim, "POST", fits)[0] == 401
    assert over_tcp.ask_tcp(claim, "POST", fits + b" ")[0] == 413
    assert over_tcp.ask_tcp(claim, "POST", fits + b" ", token=over_tcp.token)[0] == 401


def test_nothing_a_stranger_claims_with_reaches_the_log(over_tcp):
    events = []
    globalLogPublisher.addObserver(events.append)
    try:
        for code in (b'"\\ud800"', b'"\\u0000"', b"1e999", b"[]", b'"\xff"', b"\xff"):
            body = b'{"code":%s}' % code
            assert over_tcp.ask_tcp("/v1/sessions/claim", "POST", body)[0] in (400, 401), code
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert [event for event in events if event["log_level"] > LogLevel.info] == []


def test_connections_of_who_has_the_token_are_bounded(over_tcp, monkeypatch):
    # A stranger who says nothing would be ended for that.
    monkeypatch.setattr(channel, "HEAD_SECONDS", 3_600.0)
    over_tcp.tcp.site.most = 3
    kept = [over_tcp.tcp_connection() for _ in range(3)]
    for connection in kept:
        connection.request("GET", "/v1/ping", headers={"Authorization": f"Bearer {over_tcp.token}"})
        assert connection.getresponse().read()
    # Whether the reset comes before or after the handshake is the system's affair.
    with pytest.raises(ConnectionResetError):
        socket.create_connection(("127.0.0.1", over_tcp.port), timeout=20).recv(1)
    assert MAX_CONNECTIONS >= 64
    for connection in kept:
        connection.close()


def test_the_log_holds_no_token(over_tcp):
    events = []
    globalLogPublisher.addObserver(events.append)
    try:
        offer = over_tcp.client().offer_session()
        _, _, body = over_tcp.ask_tcp("/v1/sessions/claim", "POST", {"code": offer["code"]})
        over_tcp.ask_tcp("/v1/status", token=over_tcp.token)
        over_tcp.ask_tcp("/v1/status", token="wrong" * 5)
        over_tcp.node.own.failure = RuntimeError("boom")
        over_tcp.ask_tcp("/v1/feeds/-/values", "POST", {"values": ["5ec7e7"]}, token=over_tcp.token)
    finally:
        globalLogPublisher.removeObserver(events.append)
    text = repr(events)
    assert "boom" in text
    for secret in (over_tcp.token, offer["code"], json.loads(body)["token"], "5ec7e7"):
        assert secret not in text
