"""One request, with bounds on all that a server decides: time, bytes, redirects, destinations.

The connections are urllib3's, TLS and trust the system's (`SSL_CERT_FILE` is heeded), the proxy
that of the environment (`https_proxy`, `no_proxy`).

The time is bounded as a whole. A server may send a byte a second, a resolver may hang: no time
limit of a single read ends that. So the request runs in a thread, whose end is waited for no longer
than was said; a thread that is given up ends with its process, or when its server lets go. For the
same reason this belongs into a process of its own.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any, Final
from urllib.request import getproxies, proxy_bypass

from urllib3 import (
    BaseHTTPResponse,
    HTTPConnectionPool,
    HTTPSConnectionPool,
    ProxyManager,
    Timeout,
    make_headers,
)
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.util import Url, parse_url

from hyperbloom import __version__
from hyperbloom.https.destinations import (
    addresses_of,
    check_loopback,
    check_public,
    host_of,
    parsed,
    port_of,
    redirected,
)
from hyperbloom.https.failures import RequestFailed, failure
from hyperbloom.https.limits import CONNECT_SECONDS, MAX_REDIRECTS

__all__ = ["Answer", "request"]

_READ_BYTES: Final = 1 << 16
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered, its body excepted.

    ``headers``: by lower-case name, as the server sent them: look before you print them.
    """

    status: int
    headers: Mapping[str, str]


def request(
    method: str,
    url: str,
    *,
    seconds: float,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    into: IO[bytes] | None = None,
    max_bytes: int = 0,
    http_on_loopback: bool = False,
) -> Answer:
    """Ask `url`, and answer within `seconds` whatever the server does; raises `RequestFailed`.

    The body of an answer with status 200 goes to `into`, which may hold a part of it if this
    fails: no more than `max_bytes`. Bodies of other answers are not read, nor is one without
    `into`. Redirects are followed for GET alone; `headers` go to where they lead, too, so nothing
    secret belongs in them with GET. `http_on_loopback`: http:// is allowed to this machine.
    """
    exchange = _Exchange(
        method, headers or {}, body, into, max_bytes, seconds, http_on_loopback=http_on_loopback
    )
    outcome: list[Answer | Exception] = []

    def ask() -> None:
        try:
            outcome.append(exchange.ask(url))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        exchange.given_up.set()
        raise RequestFailed(
            f"there was no whole answer within {seconds:g} s; try later, or allow it more time"
        )
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


class _TlsContext(ssl.SSLContext):
    """Tells an end that TLS did not announce: what came may be a part (RFC 9112, section 9.8)."""

    def wrap_socket(self, *args: Any, **named: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*args, **(named | {"suppress_ragged_eofs": False}))


def _tls_context() -> ssl.SSLContext:
    # A client's context checks certificates and names.
    context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    return context


class _Exchange:
    """One request and its redirects, in a thread that may be given up."""

    def __init__(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        into: IO[bytes] | None,
        max_bytes: int,
        seconds: float,
        *,
        http_on_loopback: bool,
    ) -> None:
        self._method = method
        self._headers = {
            "User-Agent": f"hyperbloom/{__version__}",
            # What is sent packed may be a thousand times longer than it looks.
            "Accept-Encoding": "identity",
            **headers,
        }
        self._body = body
        self._into = into
        self._max_bytes = max_bytes
        self._timeout = Timeout(connect=min(seconds, CONNECT_SECONDS), read=seconds)
        self._http_on_loopback = http_on_loopback
        self.given_up = threading.Event()

    def ask(self, text: str) -> Answer:
        """Send it, follow its redirects, and read the body."""
        url = parsed(text, http_on_loopback=self._http_on_loopback)
        # Where the caller sends us may be anywhere, also when a redirect leads back to it.
        chosen = (url.scheme, host_of(url), port_of(url))
        for _ in range(MAX_REDIRECTS + 1):
            free = (url.scheme, host_of(url), port_of(url)) == chosen
            try:
                with self._sent(url, free=free) as response:
                    location = response.headers.get("location", "")
                    if response.status not in _REDIRECTS or not location:
                        return self._answer(response, host_of(url))
            except (HTTPError, HTTPException, OSError) as error:
                raise failure(error, host_of(url)) from None
            if self._method != "GET":
                raise RequestFailed(
                    f"{host_of(url)} redirects, which only GET follows; write the URL where it "
                    "leads to in the configuration"
                )
            url = redirected(url, location)
        raise RequestFailed(
            f"there were more than {MAX_REDIRECTS} redirects, perhaps in a circle; ask the "
            f"owner of {chosen[1]} where the file is"
        )

    def _sent(self, url: Url, *, free: bool) -> BaseHTTPResponse:
        """The beginning of an answer, of the first address that takes a connection."""
        last: Exception | None = None
        for pool in self._pools(url, free=free):
            try:
                return pool.urlopen(
                    self._method,
                    url.request_uri,
                    body=self._body,
                    headers={"Host": url.netloc or "", **self._headers},
                    timeout=self._timeout,
                    retries=False,
                    redirect=False,
                    assert_same_host=False,
                    preload_content=False,
                    decode_content=False,
                )
            except (NewConnectionError, ConnectTimeoutError) as error:
                last = error
        raise last or RequestFailed(f"{host_of(url)} has no address")

    def _pools(self, url: Url, *, free: bool) -> Iterator[HTTPConnectionPool]:
        """A way to each address of the host, or to the proxy; raises `RequestFailed`."""
        host = host_of(url)
        proxy = _proxy_for(host) if url.scheme == "https" else None
        if not free:
            check_public(url)  # before anybody is asked about the name
        addresses = addresses_of(url) if proxy is None else []
        if not free:
            check_public(url, addresses)
        if proxy is not None:
            yield proxy.connection_from_host(host, port_of(url), "https")
            return
        for address in addresses:
            if url.scheme == "http":
                check_loopback(address)
                yield HTTPConnectionPool(address, port_of(url))
            else:
                yield HTTPSConnectionPool(
                    address, port_of(url), server_hostname=host, ssl_context=_tls_context()
                )

    def _answer(self, response: BaseHTTPResponse, host: str) -> Answer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status == 200 and self._into is not None:
            self._copy(response, self._into, headers, host)
        return Answer(status=response.status, headers=headers)

    def _copy(
        self, response: BaseHTTPResponse, into: IO[bytes], headers: Mapping[str, str], host: str
    ) -> None:
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise RequestFailed(
                f"{host} sends it compressed, which was not asked for; have its owner mend that"
            )
        length = headers.get("content-length", "")
        left = self._max_bytes
        too_long = RequestFailed(
            f"{host} sends more than {left} bytes; allow more by max_bytes if that is right"
        )
        if length.isdecimal() and int(length[:20]) > left:
            raise too_long
        # Not by chunks as urllib3 reads them, which takes a length's line of any length.
        while some := response.read(_READ_BYTES, decode_content=False):
            left -= len(some)
            if left < 0:
                raise too_long
            if self.given_up.is_set():
                return
            try:
                into.write(some)
            except OSError as error:
                raise RequestFailed(
                    f"what came cannot be written: {error.strerror}; make room where it goes"
                ) from None


def _proxy_for(host: str) -> ProxyManager | None:
    """The proxy that the environment names for a host; raises `RequestFailed`."""
    proxies = getproxies()
    address = proxies.get("https") or proxies.get("all")
    if not address or proxy_bypass(host):
        return None
    try:
        url = parse_url(address if "://" in address else f"http://{address}")
    except HTTPError:
        url = Url()
    if url.scheme not in ("http", "https") or not url.host:
        raise RequestFailed(
            "https_proxy in the node's environment names no proxy; write http://HOST:PORT"
        )
    return ProxyManager(
        url._replace(auth=None).url,
        proxy_headers=make_headers(proxy_basic_auth=url.auth) if url.auth else None,
        ssl_context=_tls_context(),
        proxy_ssl_context=_tls_context(),
    )
