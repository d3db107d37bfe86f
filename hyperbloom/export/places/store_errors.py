"""What object stores say when something is wrong, as one sentence that says what to do.

deltalake hands on the text of the `object_store` crate: what it asked, and what the store answered.
Stores have names for their errors (S3's `NoSuchBucket`, Azure's `ContainerNotFound`), which are
part of their protocols; these are looked for first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from hyperbloom.export.errors import (
    ExportConflict,
    ExportError,
    StoreUnreachable,
    TableUnusable,
)

__all__ = ["error_of_store"]

_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MARKUP: Final = re.compile(r"<[^>]*>")
_LONGEST: Final = 300


class _Variables(NamedTuple):
    """What of the environment a store's settings are in."""

    credentials: str
    endpoint: str


_VARIABLES: Final[Mapping[str, _Variables]] = MappingProxyType(
    {
        "s3": _Variables("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"),
        "gs": _Variables("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"),
        "az": _Variables(
            "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCOUNT_NAME",
        ),
    }
)
_KINDS: Final = MappingProxyType({"abfs": "az", "abfss": "az"})

_NO_BUCKET: Final = (
    "NoSuchBucket",
    "ContainerNotFound",
    "FilesystemNotFound",
    "specified bucket does not exist",
)
_NO_CREDENTIALS: Final = (
    "/latest/api/token",
    "/latest/meta-data/",
    "Error performing token request",
    "169.254.169.254",
)
_WRONG_CREDENTIALS: Final = (
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "AuthenticationFailed",
    "invalid_grant",
    "401 Unauthorized",
)
_NOT_ALLOWED: Final = ("AccessDenied", "AuthorizationPermissionMismatch", "403 Forbidden")
_OTHER_REGION: Final = (
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "Received redirect without LOCATION",
)
_NO_ENCRYPTION: Final = ("URL scheme is not allowed", "BadScheme")
_NO_ANSWER: Final = (
    ("Connection refused", "connection refused"),
    ("dns error", "its name is not known"),
    ("failed to lookup address", "its name is not known"),
    ("timed out", "no answer in time"),
    ("Connection reset", "connection reset"),
    ("error sending request", "no connection"),
)


def error_of_store(error: Exception, url: str) -> ExportError:
    """An error that deltalake raised for this URL, as one of ours."""
    text = _COLORS.sub("", str(error))
    if type(error).__name__ == "CommitFailedError":
        return ExportConflict(
            f"somebody else changed {url} meanwhile; run it again, nothing was committed"
        )
    scheme, _, rest = url.partition("://")
    names = _VARIABLES[_KINDS.get(scheme, scheme)]
    for signs, told in _SENTENCES:
        if any(sign in text for sign in signs):
            return TableUnusable(told(url, rest.partition("/")[0], names))
    for sign, reason in _NO_ANSWER:
        if sign in text:
            return StoreUnreachable(
                f"the object store of {url} does not answer ({reason}); look at the network and "
                f"at {names.endpoint}{_set_to(names.endpoint)}"
            )
    return TableUnusable(f"the object store refused {url}: {_shortened(text)}")


_Told = Callable[[str, str, _Variables], str]


def _no_bucket(url: str, bucket: str, names: _Variables) -> str:
    return f"there is no bucket (or container) {bucket}; make it, or name another one than {url}"


def _no_credentials(url: str, bucket: str, names: _Variables) -> str:
    return (
        f"there are no credentials for {url}; set {names.credentials}, or give the machine a role"
    )


def _wrong_credentials(url: str, bucket: str, names: _Variables) -> str:
    return f"the object store does not know the credentials for {url}; look at {names.credentials}"


def _not_allowed(url: str, bucket: str, names: _Variables) -> str:
    return (
        f"these credentials may not do this at {url}; let them list, read, write and remove "
        "objects there"
    )


def _other_region(url: str, bucket: str, names: _Variables) -> str:
    return f"{bucket} is in another region; set AWS_REGION to the one of {url}"


def _no_encryption(url: str, bucket: str, names: _Variables) -> str:
    return f"the endpoint for {url} is http and not https; set AWS_ALLOW_HTTP=true if that is meant"


_SENTENCES: Final[tuple[tuple[tuple[str, ...], _Told], ...]] = (
    (_NO_BUCKET, _no_bucket),
    # A machine without a role is asked for one, and refuses that.
    (_NO_CREDENTIALS, _no_credentials),
    (_WRONG_CREDENTIALS, _wrong_credentials),
    (_OTHER_REGION, _other_region),
    (_NOT_ALLOWED, _not_allowed),
    (_NO_ENCRYPTION, _no_encryption),
)


def _set_to(variable: str) -> str:
    value = os.environ.get(variable, "")
    return f" ({value})" if value else ""


def _shortened(text: str) -> str:
    """One line, without markup and arrows."""
    words = _MARKUP.sub(" ", text).replace("↳", " ").split()
    return " ".join(words)[:_LONGEST]
