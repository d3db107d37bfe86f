"""Why a request failed, as one sentence with its cure.

No text of the server comes into a sentence: its status line, its headers and the words of a
proxy may hold anything. Names of hosts and what OpenSSL says are printable ASCII here.
"""

from __future__ import annotations

import re
import ssl
from http.client import HTTPException

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = ["RequestFailed", "failure"]

_TUNNEL_STATUS = re.compile(r"Tunnel connection failed: ([0-9]{3})\b")


class RequestFailed(HyperbloomError):
    """There is no whole answer; the message says why, and what to do about it."""

    kind = ErrorKind.UNREACHABLE


def failure(error: Exception, host: str) -> RequestFailed:
    """What went wrong with `host`, of what urllib3, ssl or the system raised."""
    if isinstance(error, ProxyError):
        return RequestFailed(_proxy(error))
    # It is a ConnectTimeoutError for urllib3, too.
    if isinstance(error, NewConnectionError):
        return RequestFailed(
            f"{host} cannot be reached: {_system(error)}; check that it is up and the port is right"
        )
    if isinstance(error, ConnectTimeoutError):
        return RequestFailed(
            f"{host} does not answer; check its address, and what filters the way to it"
        )
    if isinstance(error, ReadTimeoutError):
        return RequestFailed(f"{host} took too long to answer; try later, or allow it more time")
    if isinstance(error, SSLError | ssl.SSLError):
        return RequestFailed(_tls(error, host))
    return RequestFailed(
        f"{host} broke off, or does not speak HTTP as it should ({type(_cause(error)).__name__}); "
        "try later, and look at the URL with another client if it stays so"
    )


def _cause(error: BaseException) -> BaseException:
    """What a library wrapped: the last of the causes that is an error of the system or of HTTP."""
    found = error
    while True:
        inside = [found.__cause__, *(it for it in found.args if isinstance(it, BaseException))]
        known = [it for it in inside if isinstance(it, OSError | HTTPException | HTTPError)]
        if not known:
            return found
        found = known[0]


def _system(error: BaseException) -> str:
    cause = _cause(error)
    return (isinstance(cause, OSError) and cause.strerror) or "no connection"


def _tls(error: Exception, host: str) -> str:
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {host} is not valid here: {_printable(cause.verify_message)}; "
            "have its owner mend it, or name the CA's file in SSL_CERT_FILE if it is your own"
        )
    if isinstance(cause, ssl.SSLEOFError):
        return f"{host} broke the connection off before its end; try later"
    reason = _printable(getattr(cause, "reason", None) or "no reason given")
    return f"no TLS connection to {host}: {reason}; check that this port speaks https"


def _proxy(error: ProxyError) -> str:
    original = error.original_error
    cure = "check https_proxy in the node's environment, or name the host in no_proxy"
    if status := _TUNNEL_STATUS.search(str(original)):
        return f"the proxy refuses to connect, with {status.group(1)}; ask who runs it, or {cure}"
    cause = _cause(original)
    if isinstance(cause, ssl.SSLError):
        return f"no TLS connection to the proxy; {cure}"
    return f"the proxy cannot be reached: {_system(original)}; {cure}"


def _printable(text: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)[:200]
