"""Webhooks: signed so that the published package takes them; servers may answer anything."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import os
import re
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
import standardwebhooks
import webhook_receiver as receiver_of
from hook_scenes import HookScene, RealHookScene
from twisted.logger import capturedLogs
from webhook_receiver import Answer, receiving, status

from hyperbloom.integrations.integration import IntegrationFailed
from hyperbloom.integrations.limits import (
    FIRST_RETRY_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    POSTING_SECONDS,
    RETRY_AFTER_CHARACTERS,
)
from hyperbloom.integrations.webhooks import load_secret, retry_after_seconds, signature
from hyperbloom.passphrase import PassphraseError

NOW = 1_900_000_000.0


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[RealHookScene]:
    one = RealHookScene(tmp_path / "node")
    yield one
    one.close()


@pytest.fixture
def doubled(tmp_path: Path) -> Iterator[HookScene]:
    one = HookScene(tmp_path / "node")
    yield one
    one.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"whsec_{base64.b64encode(os.urandom(32)).decode()}\n")
    path.chmod(0o600)
    return path


def start(scene: HookScene, url: str, **more: object) -> None:
    scene.start(**{"command": (), "url": url, "delay": 0.0} | more)


def fails(scene: RealHookScene, answer: Answer, *, timeout: float = 60.0) -> str:
    """The sentence about a server that answers so; checks that the URL is not in it."""
    with receiving(answer) as receiver, capturedLogs() as events:
        start(scene, receiver.url(), timeout=timeout)
        scene.put(b"1")
        scene.until(lambda: scene.hook.attempts.problem)
        assert scene.hook.figures()["values_waiting"] == 1
    told = repr([scene.hook.status(), events])
    assert "private" not in told
    assert "/secret" not in told
    return scene.hook.attempts.problem or ""


# The signature


def test_the_published_vector() -> None:
    """Of the packages of Standard Webhooks, which all have it in their tests."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_batch_is_signed_so_that_the_package_of_receivers_takes_it(
    scene: RealHookScene, secret: Path
) -> None:
    with receiving() as receiver:
        start(scene, receiver.url(), secret=secret)
        scene.put(b"1", b"\xff\x00")
        scene.until(lambda: scene.hook.figures()["batches_told"] == 1)
    (request,) = receiver.requests
    webhook = standardwebhooks.Webhook(secret.read_text().strip())
    webhook.verify(request.body, request.headers, json_parse=False)
    for spoilt in (request.body + b"\n", request.body.replace(b"ff00", b"ff01")):
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            webhook.verify(spoilt, request.headers, json_parse=False)
    # And by hand, as a receiver without the package does it.
    key = base64.b64decode(secret.read_text().strip().removeprefix("whsec_"))
    said = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    made = base64.b64encode(hmac.digest(key, said + request.body, hashlib.sha256)).decode()
    assert request.headers["webhook-signature"] == f"v1,{made}"
    assert request.path == "/secret/path?token=private"
    assert request.headers["Content-Type"] == "application/x-ndjson"
    assert request.headers["Hyperbloom-Hook"] == "bell"
    assert request.headers["Hyperbloom-Feed"] == scene.feed.log_name
    assert request.headers["Hyperbloom-Life"] == "1"
    values = [json.loads(line)["value"] for line in request.body.splitlines()]
    assert values == ["31", "ff00"]


def test_without_a_secret_nothing_is_signed(scene: RealHookScene) -> None:
    with receiving() as receiver:
        start(scene, receiver.url())
        scene.put(b"1")
        scene.until(lambda: scene.hook.figures()["batches_told"] == 1)
    names = {name.lower() for name in receiver.requests[0].headers}
    assert {"webhook-id", "webhook-timestamp"} < names
    assert "webhook-signature" not in names


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (b"whsec_" + base64.b64encode(bytes(24)), True),
        (base64.b64encode(bytes(64)) + b"\n", True),
        (b"whsec_" + base64.b64encode(bytes(23)), False),
        (b"whsec_" + base64.b64encode(bytes(65)), False),
        (b"a good secret that is no base64", False),
    ],
)
def test_which_secrets_are_taken(tmp_path: Path, text: bytes, taken: bool) -> None:
    path = tmp_path / "secret"
    path.write_bytes(text)
    path.chmod(0o600)
    if taken:
        assert len(load_secret(path)) in (24, 64)
    else:
        with pytest.raises(IntegrationFailed, match="base64 of 24 to 64 bytes") as raised:
            load_secret(path)
        assert text.decode().strip() not in str(raised.value)


def test_a_secret_that_others_may_read_is_refused(doubled: HookScene, secret: Path) -> None:
    secret.chmod(0o644)
    with pytest.raises(PassphraseError):
        load_secret(secret)
    start(doubled, "https://chat.example/hook", secret=secret)
    doubled.put(b"1")
    assert "run chmod 600 on it" in (doubled.hook.status().problem or "")
    assert doubled.commands.begun == []


def test_url_and_secret_are_in_no_argument_and_no_environment(
    doubled: HookScene, secret: Path
) -> None:
    start(doubled, "https://chat.example/private", secret=secret, timeout=9.0)
    doubled.put(b"1")
    told = doubled.commands.last
    assert told.seconds == 9.0 + POSTING_SECONDS
    assert (told.environment, "private" in repr(told.arguments)) == ({}, False)
    form = json.loads(told.given.partition(b"\n")[0])
    assert (form["url"], form["seconds"]) == ("https://chat.example/private", 9.0)
    assert secret.read_text().strip().encode() not in told.given
    assert doubled.hook.status().target == "chat.example"


# Answers


@pytest.mark.parametrize("code", [200, 202, 204, 299])
def test_any_2xx_takes_a_batch(doubled: HookScene, code: int) -> None:
    start(doubled, "https://chat.example/")
    doubled.put(b"1")
    doubled.commands.last.end(output=b'{"status":%d,"retry_after":null}' % code)
    assert doubled.hook.figures()["batches_told"] == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (100, "answered with 100"),
        (300, "answered with 300"),
        (401, "answered with 401; check `url`, and that the server knows this `secret`"),
        (404, "answered with 404; correct `url`"),
        (413, "answered with 413; set `batch` lower"),
        (500, "answered with 500; look at what its log says"),
    ],
)
def test_any_other_does_not(doubled: HookScene, code: int, said: str) -> None:
    start(doubled, "https://chat.example/")
    doubled.put(b"1")
    doubled.commands.last.end(output=b'{"status":%d,"retry_after":"x"}' % code)
    status = doubled.hook.status()
    assert said in (status.problem or "")
    assert status.next_run == pytest.approx(doubled.now() + FIRST_RETRY_SECONDS)


def test_a_retry_has_the_same_id_and_a_signature_of_its_own(
    scene: RealHookScene, secret: Path
) -> None:
    with receiving(status(500), status(429, Retry_After="2"), status(200)) as receiver:
        start(scene, receiver.url(), secret=secret)
        scene.put(b"1")
        for count in (1, 2):
            scene.until(lambda count=count: scene.hook.attempts.failures == count)
            scene.put(b"later")
            scene.clock.advance(FIRST_RETRY_SECONDS * 2)
        scene.until(lambda: scene.hook.figures()["batches_told"] == 2)
    first, second, third, fourth = receiver.requests
    assert first.body == second.body == third.body != fourth.body
    ids = [request.headers["webhook-id"] for request in receiver.requests]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert re.fullmatch(r"[0-9a-f]{16}-1-1-1", ids[0])
    webhook = standardwebhooks.Webhook(secret.read_text().strip())
    for request in receiver.requests:
        webhook.verify(request.body, request.headers, json_parse=False)


def test_it_waits_as_long_as_the_server_asks_for(doubled: HookScene) -> None:
    start(doubled, "https://chat.example/")
    doubled.put(b"1")
    doubled.commands.last.end(output=b'{"status":503,"retry_after":"60"}')
    assert doubled.hook.status().next_run == pytest.approx(doubled.now() + 60)
    doubled.put(b"2")
    doubled.wait(59)
    assert len(doubled.commands.begun) == 1
    doubled.wait(2)
    assert len(doubled.commands.begun) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0.0),
        ("0", 0.0),
        ("17", 17.0),
        (str(int(MAX_RETRY_AFTER_SECONDS)), MAX_RETRY_AFTER_SECONDS),
        (str(int(MAX_RETRY_AFTER_SECONDS) + 1), MAX_RETRY_AFTER_SECONDS),
        ("9" * RETRY_AFTER_CHARACTERS, MAX_RETRY_AFTER_SECONDS),
        ("-5", 0.0),
        ("1e9", 0.0),
        ("٣", 0.0),
        ("soon\x1b[31m", 0.0),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        (formatdate(NOW + 1e8, usegmt=True), MAX_RETRY_AFTER_SECONDS),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0.0),
    ],
)
def test_how_long_a_server_may_ask_for(text: str | None, seconds: float) -> None:
    found = retry_after_seconds(text, NOW)
    assert found == seconds
    assert math.isfinite(found)


def test_a_server_that_wants_nothing_any_more_is_left_alone(doubled: HookScene) -> None:
    start(doubled, "https://chat.example/")
    doubled.put(b"1")
    doubled.commands.last.end(output=b'{"status":410,"retry_after":null}')
    status = doubled.hook.status()
    assert (status.state, status.next_run) == ("held", None)
    assert "chat.example wants nothing any more (410)" in (status.problem or "")
    doubled.put(b"2")
    doubled.clock.advance(90_000)
    assert len(doubled.commands.begun) == 1
    # Somebody has looked.
    doubled.hook.run()
    doubled.commands.last.end(output=b'{"status":200,"retry_after":null}')
    doubled.clock.advance(0)
    assert doubled.hook.status().state == "working"
    assert len(doubled.commands.begun) == 3


def test_a_redirect_is_not_followed(scene: RealHookScene) -> None:
    with receiving() as elsewhere:
        said = fails(scene, status(308, Location=elsewhere.url("/elsewhere")))
    assert "127.0.0.1 redirects" in said
    assert elsewhere.requests == []


@pytest.mark.parametrize("answer", [receiver_of.close, receiver_of.garbage])
def test_what_is_no_answer_is_a_failure(scene: RealHookScene, answer: Answer) -> None:
    said = fails(scene, answer)
    assert "127.0.0.1" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("answer", [receiver_of.drip, receiver_of.later(600, status(200))])
def test_a_server_that_takes_too_long_has_not_taken_it(
    scene: RealHookScene, answer: Answer
) -> None:
    assert "1 s" in fails(scene, answer, timeout=1.0)


def test_a_slow_server_is_waited_for(scene: RealHookScene) -> None:
    with receiving(receiver_of.later(0.3, status(200))) as receiver:
        start(scene, receiver.url())
        scene.put(b"1")
        scene.until(lambda: scene.hook.figures()["batches_told"] == 1)
    assert len(receiver.requests) == 1


def test_a_header_beyond_the_most_is_cut(scene: RealHookScene) -> None:
    """A number of any length is no reason to wait for longer, or to fail otherwise."""
    said = fails(scene, status(503, Retry_After="0" * RETRY_AFTER_CHARACTERS + "3000"))
    assert "answered with 503" in said
    assert scene.hook.status().next_run == pytest.approx(
        scene.now() + FIRST_RETRY_SECONDS, abs=FIRST_RETRY_SECONDS
    )
    assert fails(scene, status(503, Retry_After="9" * 60_000)) == said


def test_headers_without_an_end_are_a_failure(scene: RealHookScene) -> None:
    assert "127.0.0.1" in fails(scene, receiver_of.endless_head)


def test_an_answer_is_not_read_further_than_its_head(scene: RealHookScene) -> None:
    with receiving(receiver_of.endless) as receiver:
        start(scene, receiver.url())
        scene.put(b"1")
        scene.until(lambda: scene.hook.figures()["batches_told"] == 1)
    assert len(receiver.requests) == 1


def test_nobody_there_is_a_failure(scene: RealHookScene) -> None:
    with receiving() as receiver:
        url = receiver.url()
    start(scene, url)
    scene.put(b"1")
    scene.until(lambda: scene.hook.attempts.problem)
    assert "private" not in repr(scene.hook.status())


def test_the_process_that_sends_may_fail(doubled: HookScene) -> None:
    start(doubled, "https://chat.example/private")
    doubled.put(b"1")
    doubled.commands.last.end("python was ended by SIGKILL")
    problem = doubled.hook.status().problem or ""
    assert "the process that sends to chat.example failed (python was ended by SIGKILL)" in problem
