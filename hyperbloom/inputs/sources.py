"""Where a source comes from: a file of this machine, or an https server.

Both end as an open file that is read twice, first for what it sums up to, so that a source which
did not change costs no more. A page is first written to a file of the input's own: nothing of it is
read before all of it is there.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO
from urllib.parse import urlsplit

from hyperbloom.inputs.formats.parsing import SourceRefused
from hyperbloom.inputs.limits import MAX_VALIDATOR_BYTES
from hyperbloom.inputs.opening import open_source

__all__ = ["Fetched", "FileChanged", "Validators", "chunks_of", "digest_of", "fetch", "open_file"]

_CHUNK = 1 << 20

_CURES = {
    401: "it asks who you are, which a node cannot answer; look for an open address of the list",
    403: "it does not give this to everybody; check the URL, or ask its owner",
    404: "there is nothing at this URL; look for the list's new address",
    410: "the list is no more; look for its new address, or remove this input",
    429: "it is asked too often; raise `every`",
}
_SERVER_TROUBLE = "the server has trouble; try later, or tell its owner if it stays so"


class FileChanged(SourceRefused):
    """A file held other bytes when it was read the second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validators:
    """What a server said of the version that it sent (RFC 9110, section 8.8), printable ASCII."""

    etag: str | None = None
    last_modified: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A page, open for reading; `page` is None if it is still the version that was asked about."""

    page: IO[bytes] | None
    validators: Validators


def open_file(path: str, own: Sequence[str], max_bytes: int) -> BinaryIO:
    """A file of this machine that is none of the node's `own`; raises `SourceRefused`."""
    file = open_source(path, own)
    if os.fstat(file.fileno()).st_size > max_bytes:
        file.close()
        raise SourceRefused(_too_long(max_bytes))
    return file


def fetch(url: str, folder: Path, *, max_bytes: int, seconds: float, known: Validators) -> Fetched:
    """A page, by way of a file in `folder` that has no name; raises `SourceRefused`.

    `known`: of the version that need not be sent again; nothing is asked about without them. Raises
    `RequestFailed` if there is no whole answer within `seconds`.
    """
    # Not loaded where a source is a file.
    from hyperbloom.https import request

    headers = {}
    if known.etag is not None:
        headers["If-None-Match"] = known.etag
    if known.last_modified is not None:
        headers["If-Modified-Since"] = known.last_modified
    page = TemporaryFile(dir=folder)  # noqa: SIM115  the caller closes it
    try:
        answer = request(
            "GET", url, seconds=seconds, headers=headers, into=page, max_bytes=max_bytes
        )
        if answer.status == HTTPStatus.NOT_MODIFIED and headers:
            page.close()
            return Fetched(page=None, validators=known)
        if answer.status != HTTPStatus.OK:
            raise SourceRefused(_status(answer.status, urlsplit(url).hostname or ""))
        page.flush()
    except BaseException:
        page.close()
        raise
    etag, modified = (_printable(answer.headers.get(it)) for it in ("etag", "last-modified"))
    return Fetched(page=page, validators=Validators(etag=etag, last_modified=modified))


def digest_of(file: IO[bytes], max_bytes: int) -> str:
    """What a file holds, as SHA-256 in hex; raises `SourceRefused` if it is too long."""
    digest = hashlib.sha256()
    length = 0
    file.seek(0)
    while some := file.read(_CHUNK):
        length += len(some)
        if length > max_bytes:
            raise SourceRefused(_too_long(max_bytes))
        digest.update(some)
    return digest.hexdigest()


def chunks_of(file: IO[bytes], digest: str, until: float) -> Iterator[bytes]:
    """What a file holds, in slices; raises `FileChanged` if that is not what `digest` says.

    `until`: the moment, on `time.monotonic`, behind which nobody waits for the values: it raises
    `SourceRefused` then.
    """
    seen = hashlib.sha256()
    file.seek(0)
    while some := file.read(_CHUNK):
        if time.monotonic() > until:
            raise SourceRefused("it took too long to read; raise `timeout`, or divide the source")
        seen.update(some)
        yield some
    if seen.hexdigest() != digest:
        raise FileChanged(
            "the file changes while it is read; have it written beside itself and then renamed"
        )


def _too_long(max_bytes: int) -> str:
    return f"the source has more than {max_bytes} bytes; allow more by max_bytes if that is right"


def _status(status: int, host: str) -> str:
    try:
        phrase = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        phrase = ""
    other = _SERVER_TROUBLE if status >= 500 else "that is no list; look at the URL with a browser"
    return f"{host} answers {status}{phrase}: {_CURES.get(status, other)}"


def _printable(value: str | None) -> str | None:
    """A header that can be kept and sent back, or None."""
    if value and len(value) <= MAX_VALIDATOR_BYTES and value.isascii() and value.isprintable():
        return value
    return None
