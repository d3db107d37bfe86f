"""Who may use the API over TCP: tokens, sessions of browsers, and checks against other web pages.

The control socket is guarded by the mode of its file. A TCP port of this machine is open to each of
its users, and to every web page that one of them looks at. Against those stand:

- **A token** for everything but what says nothing: `Authorization: Bearer`, from a file with mode
  0600. A header that a page of another origin cannot set without being asked for leave (which is
  never given), unlike a cookie, which browsers add by themselves.
- **A second token** for the metrics alone, so that what collects them can do nothing else.
- **The Host header** must name this port by a loopback name. A page whose name is made to lead to
  127.0.0.1 (DNS rebinding) is of the right origin to its browser, but has the wrong Host.
- **Origin and Sec-Fetch-Site**, where a browser sends them, must be those of our own page.

A browser is not given the token. `hyperbloom status --web` asks for a code, which is good once and
for a short time and stands behind the `#` of the page's address, which is never sent; the page
exchanges it for a session, which may read and nothing else, and ends with the node's process: a
restart cuts off whoever has got hold of one.
"""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hyperbloom.addresses import Address
from hyperbloom.api.limits import CODE_SECONDS, MAX_CODES, SESSION_SECONDS
from hyperbloom.api.problems import Problem
from hyperbloom.credentials import is_credential
from hyperbloom.errors import ErrorKind
from hyperbloom.passphrase import PassphraseError, load_passphrase

if TYPE_CHECKING:
    from twisted.web.http_headers import Headers

__all__ = ["Access", "Rights", "load_token"]

TOKEN_BYTES: Final = 32
NONCE_BYTES: Final = 16


class Rights(IntEnum):
    """What a request may do; each right includes those before it."""

    NONE = 0
    METRICS = 1
    READ = 2
    ALL = 3


def load_token(path: Path) -> str:
    """The token in the file, which is made, with mode 0600, where there is none.

    A credential of systemd is not made.

    Raises `PassphraseError` when it cannot be made, or others than its owner may read it.
    """
    if not os.path.lexists(path) and not is_credential(path):
        try:
            _make_token(path)
        except OSError as error:
            raise PassphraseError(
                f"the token file {path} cannot be made ({error.strerror}); check its folder"
            ) from None
    return load_passphrase(path, what="token")


def _make_token(path: Path) -> None:
    """The file appears whole or not at all, even if the disk is full or the process is killed."""
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(TOKEN_BYTES) + "\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # somebody was faster: theirs holds
            os.link(name, path)
    finally:
        os.unlink(name)


def _texts(headers: Headers, name: bytes) -> list[str]:
    """A header's values; any bytes may stand in one (RFC 9110, 5.5)."""
    return [value.decode("latin-1") for value in headers.getRawHeaders(name, [])]


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


class _Codes:
    """A bounded set of texts, each good once and for a time; kept as hashes, so that a look-up
    tells no more of them than whether they are there."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def issue(self) -> str:
        """A new text."""
        text = secrets.token_urlsafe(TOKEN_BYTES)
        self._until[_digest(text)] = self._clock() + CODE_SECONDS
        while len(self._until) > MAX_CODES:
            self._until.popitem(last=False)
        return text

    def take(self, text: str) -> bool:
        """Whether the text was issued and still holds; it is used up."""
        return self._until.pop(_digest(text), 0.0) > self._clock()


class _Sessions:
    """Texts by which a process knows that it issued them, and until when they hold.

    now: seconds since 1970. The key is in this process alone, and every session ends with it.
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._key = secrets.token_bytes(32)
        self._now = now

    def issue(self) -> str:
        """A new one."""
        end = int(self._now() + SESSION_SECONDS)
        text = f"{end}.{secrets.token_urlsafe(NONCE_BYTES)}"
        return f"{text}.{self._proof(text)}"

    def knows(self, session: str) -> bool:
        """Whether it was issued by this process and still holds.

        One that ends later than any could was issued while the clock was wrong.
        """
        text, _, proof = session.rpartition(".")
        if not hmac.compare_digest(self._proof(text).encode(), proof.encode()):
            return False
        end = int(text.partition(".")[0])
        return self._now() < end <= self._now() + SESSION_SECONDS

    def _proof(self, text: str) -> str:
        return blake2b(text.encode(), key=self._key, digest_size=32).hexdigest()


class Access:
    """The guard of one TCP port. `clock` gives steady seconds, `now` those since 1970.

    hosts: the values of Host that are meant for it. metrics_token: what may read the metrics alone.
    """

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        metrics_token: str | None = None,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self.address = address
        host, port = address
        names = {str(Address(name, port)) for name in (host, "127.0.0.1", "::1", "localhost")}
        if port == 80:
            names |= {name.removesuffix(":80") for name in names}
        self.hosts = frozenset(names)
        self._token = _digest(token)
        self._metrics_token = None if metrics_token is None else _digest(metrics_token)
        self._codes = _Codes(clock=clock)
        self._sessions = _Sessions(now=now)

    @property
    def url(self) -> str:
        """The address of the status page."""
        return f"http://{self.address}/"

    def issue_code(self) -> str:
        """A code that a browser may exchange, once, for a session."""
        return self._codes.issue()

    def claim(self, code: str) -> str:
        """The token of a new session for a code; raises `Problem` UNAUTHORIZED."""
        if not self._codes.take(code):
            raise Problem(
                ErrorKind.UNAUTHORIZED,
                "the link was used already or is too old; `hyperbloom status --web` gives another",
            )
        return self._sessions.issue()

    def rights(self, headers: Headers) -> Rights:
        """What a request with these headers may; raises `Problem` for one from elsewhere."""
        self._check_origin(headers)
        found = _texts(headers, b"authorization")
        if not found:
            return Rights.NONE
        scheme, _, token = found[0].partition(" ")
        if len(found) == 1 and scheme.lower() == "bearer":
            token = token.strip()
            if hmac.compare_digest(_digest(token), self._token):
                return Rights.ALL
            if self._metrics_token is not None and hmac.compare_digest(
                _digest(token), self._metrics_token
            ):
                return Rights.METRICS
            if self._sessions.knows(token):
                return Rights.READ
        raise Problem(ErrorKind.UNAUTHORIZED, "the token is not this node's, or no longer valid")

    def _check_origin(self, headers: Headers) -> None:
        hosts = _texts(headers, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            raise Problem(
                ErrorKind.FORBIDDEN, "the Host header does not name this server's address"
            )
        for origin in _texts(headers, b"origin"):
            if origin.lower() != f"http://{hosts[0].lower()}":
                raise Problem(ErrorKind.FORBIDDEN, "pages of other origins may not use this API")

    @staticmethod
    def check_page(headers: Headers) -> None:
        """Raises `Problem` for a request that comes from a page of another site.

        Links to the page itself may stand anywhere, so this is for everything else.
        """
        for site in _texts(headers, b"sec-fetch-site"):
            if site not in ("same-origin", "none"):
                raise Problem(ErrorKind.FORBIDDEN, "pages of other sites may not use this API")
