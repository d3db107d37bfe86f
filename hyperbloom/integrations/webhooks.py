"""A hook that sends batches to a web server: POST, JSON lines, signed as Standard Webhooks asks.

The specification (https://www.standardwebhooks.com) says which headers there are, what is signed,
and what the answers mean. A process of its own sends (`posting`), so that neither TLS nor a slow
server holds the node. Path and query of a URL may be a secret, so messages name the host alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import sys
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hyperbloom.integrations.commands import CommandFailed
from hyperbloom.integrations.hooks import Batch, Hook
from hyperbloom.integrations.integration import IntegrationContext, IntegrationFailed
from hyperbloom.integrations.limits import MAX_RETRY_AFTER_SECONDS, POSTING_SECONDS
from hyperbloom.integrations.settings import HookSettings
from hyperbloom.passphrase import load_passphrase
from hyperbloom.replication.feed.feed import Feed

__all__ = ["Webhook", "load_secret", "retry_after_seconds", "signature"]

_POSTING: Final = (sys.executable, "-P", "-m", "hyperbloom.integrations.posting")
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105  no secret
_SECRET_BYTES: Final = range(24, 65)
_CONTENT_TYPE: Final = "application/x-ndjson"
_GONE: Final = 410

#: What to do about an answer, where there is more to say than to look at the server.
_CURES: Final = {
    401: "check `url`, and that the server knows this `secret`",
    403: "check `url`, and that the server knows this `secret`",
    404: "correct `url`",
    413: "set `batch` lower",
}


class Webhook(Hook):
    """A hook that sends batches to a web server."""

    def __init__(self, settings: HookSettings, context: IntegrationContext) -> None:
        super().__init__(settings, context)
        if settings.url is None:
            raise ValueError("a webhook has a URL")
        self._url = settings.url
        #: The server has said that nothing is to be sent any more.
        self._gone = False

    @property
    def target(self) -> str:
        """The host alone."""
        return urlsplit(self._url).hostname or ""

    @property
    def held(self) -> bool:
        """After an answer 410 somebody has to look."""
        return self._gone

    def wake(self, seconds: float = 0.0) -> None:
        """Values have come; they wait where the server wants none."""
        if not self._gone:
            super().wake(seconds)

    async def tell(self, feed: Feed, batch: Batch) -> None:
        """Send it; the batch is taken when the answer is a 2xx."""
        now = self.context.now()
        request = await feed.context.own_work(lambda: self._request(batch, int(now)))
        try:
            ended = await self.context.commands.run(
                _POSTING, seconds=self.settings.timeout + POSTING_SECONDS, given=request, quiet=True
            )
        except CommandFailed as error:
            raise IntegrationFailed(
                f"the process that sends to {self.target} failed ({error}); look whether the "
                "machine lacks memory or time"
            ) from None
        self._judge(json.loads(ended.output))

    def _request(self, batch: Batch, now: int) -> bytes:
        """What `posting` reads; in a thread, as it reads a file and hashes megabytes."""
        headers = {
            "Content-Type": _CONTENT_TYPE,
            "Hyperbloom-Hook": self.settings.name,
            "Hyperbloom-Feed": batch.feed,
            "Hyperbloom-Life": str(batch.life),
            "webhook-id": batch.id,
            "webhook-timestamp": str(now),
        }
        if self.settings.secret is not None:
            secret = load_secret(self.settings.secret)
            headers["webhook-signature"] = signature(secret, batch.id, now, batch.lines)
        form = {"url": self._url, "headers": headers, "seconds": self.settings.timeout}
        return json.dumps(form).encode("ascii") + b"\n" + batch.lines

    def _judge(self, answer: Mapping[str, Any]) -> None:
        if "problem" in answer:
            raise IntegrationFailed(answer["problem"])
        status = answer["status"]
        self._gone = status == _GONE
        if self._gone:
            raise IntegrationFailed(
                f"{self.target} wants nothing any more (410); correct `url`, take the hook out, or "
                f"`hyperbloom hook run {self.settings.name}` when that has changed",
                wait=math.inf,
            )
        if not 200 <= status < 300:
            cure = _CURES.get(status, "look at what its log says")
            wait = retry_after_seconds(answer["retry_after"], self.context.now())
            raise IntegrationFailed(f"{self.target} answered with {status}; {cure}", wait=wait)


def load_secret(path: Path) -> bytes:
    """The key of a file: `whsec_` and base64 of 24 to 64 bytes, the prefix may lack.

    Raises `PassphraseError` where the file cannot be read or is open to others, and
    `IntegrationFailed` for another text.
    """
    text = load_passphrase(path, what="webhook secret").removeprefix(_SECRET_PREFIX)
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) not in _SECRET_BYTES:
        raise IntegrationFailed(
            f"the webhook secret file {path} must hold {_SECRET_PREFIX} and base64 of 24 to 64 "
            "bytes; take the one that the receiver gives, or make one as docs/hooks.md says"
        )
    return secret


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: HMAC-SHA256 of `id.timestamp.body` (Standard Webhooks)."""
    signed = b"%s.%d." % (message_id.encode("ascii"), timestamp)
    made = hmac.new(secret, signed, hashlib.sha256)
    made.update(body)
    return f"v1,{base64.b64encode(made.digest()).decode('ascii')}"


def retry_after_seconds(text: str | None, now: float) -> float:
    """How long a server asks to wait (RFC 9110, section 10.2.3), 0 where it says nothing sensible.

    Never more than MAX_RETRY_AFTER_SECONDS. `now` is seconds since 1970.
    """
    if text is None:
        return 0.0
    if text.isascii() and text.isdecimal():
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (TypeError, ValueError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS)
