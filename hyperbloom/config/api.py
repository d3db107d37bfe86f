"""The `[api]` table of the configuration: the API over TCP, beside the control socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hyperbloom.addresses import Address, Scope
from hyperbloom.config.table import ConfigTable

__all__ = ["API_KEYS", "METRICS_TOKEN_NAME", "TOKEN_NAME", "ApiSettings", "read_api"]

API_KEYS = ("listen", "token", "metrics_token")
TOKEN_NAME = "api.token"  # noqa: S105  the name of the file, not a token
METRICS_TOKEN_NAME = "metrics.token"  # noqa: S105  the same


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`listen` is a loopback address, None: the control socket only.

    The files of the tokens: for everything, and for the metrics alone.
    """

    listen: Address | None = None
    token: Path
    metrics_token: Path


def check_loopback(text: str) -> Address:
    """The loopback address in a text. Raises `ValueError` for what others could reach.

    The API speaks plain HTTP: beyond this machine its token would be read on the way.
    """
    address = Address.parse(text)
    if address.scope is Scope.LOOPBACK:
        return address
    raise ValueError(
        f"{text!r} is no loopback address such as 127.0.0.1:4366; to reach the API from "
        "elsewhere, forward the port (ssh -L) or put a server with TLS before it"
    )


def read_api(table: ConfigTable, data: Path) -> ApiSettings:
    """The settings of `[api]`; the tokens' paths are relative to the data folder."""
    table.refuse_unknown(API_KEYS)
    listen = table.text("listen", "")
    token = table.secret_path("token", data, TOKEN_NAME)
    metrics_token = table.secret_path("metrics_token", data, METRICS_TOKEN_NAME)
    if metrics_token == token:
        raise table.error("metrics_token", "must be another file than token, which may do more")
    return ApiSettings(
        listen=table.checked("listen", listen, check_loopback) if listen else None,
        token=token,
        metrics_token=metrics_token,
    )
