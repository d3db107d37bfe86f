"""What a client asks about outputs, inputs and hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from hyperbloom.client.transport import Transport

if TYPE_CHECKING:
    from hyperbloom.api.schemas.integrations import IntegrationForm
    from hyperbloom.integrations.status import Kind

__all__ = ["IntegrationRequests"]


class IntegrationRequests(Transport):
    """How outputs, inputs and hooks stand, and runs of them; `kind` is one of these words."""

    def integrations(self, kind: Kind) -> list[IntegrationForm]:
        """All of a kind, in the order of the configuration."""
        return cast("list[IntegrationForm]", self.ask("GET", f"/v1/{kind}s")[f"{kind}s"])

    def integration(self, kind: Kind, name: str) -> IntegrationForm:
        """One of them; see `hyperbloom.integrations.status.IntegrationStatus`."""
        return cast("IntegrationForm", self.ask("GET", _path(kind, name)))

    def run_integration(self, kind: Kind, name: str, *, force: bool = False) -> IntegrationForm:
        """Has one run now; how it stands after that. `force`: do also what is held back.

        Raises `Problem` with why the run failed.
        """
        form = self.ask("POST", f"{_path(kind, name)}/run", {"force": force})
        return cast("IntegrationForm", form)


def _path(kind: Kind, name: str) -> str:
    return f"/v1/{kind}s/{quote(name, safe='')}"
