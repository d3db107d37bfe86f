"""All outputs, inputs and hooks of a node: begun with it, ended with it, replaced by a reload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList

from hyperbloom.integrations.hooks import CommandHook
from hyperbloom.integrations.inputs import Input
from hyperbloom.integrations.integration import Integration, IntegrationContext
from hyperbloom.integrations.outputs import Output
from hyperbloom.integrations.settings import (
    HookSettings,
    InputSettings,
    IntegrationSettings,
    IntegrationsSettings,
    OutputSettings,
)
from hyperbloom.integrations.status import IntegrationStatus, Kind
from hyperbloom.integrations.webhooks import Webhook

__all__ = ["IntegrationsService"]


def _hook(settings: HookSettings, context: IntegrationContext) -> Integration[HookSettings]:
    return (Webhook if settings.url is not None else CommandHook)(settings, context)


#: What runs each kind, by the class of its settings.
KINDS: Mapping[type[Any], Callable[..., Integration[Any]]] = {
    OutputSettings: Output,
    InputSettings: Input,
    HookSettings: _hook,
}


class IntegrationsService(Service):
    """They stand in the order of the configuration: outputs, inputs, hooks."""

    def __init__(self, settings: IntegrationsSettings, context: IntegrationContext) -> None:
        self._context = context
        self._all = [self._made(one) for one in settings]
        self._name_inputs(settings)

    def startService(self) -> None:
        """Begin."""
        super().startService()
        self._context.commands.start()
        for one in self._all:
            one.start()

    def stopService(self) -> Deferred[None]:
        """End all; fires when no program of theirs runs any more."""
        super().stopService()
        stopped = DeferredList([one.stop() for one in self._all], consumeErrors=True)
        commands = self._context.commands
        return cast("Deferred[None]", stopped.addBoth(lambda _: commands.stop()))

    def use(self, settings: IntegrationsSettings) -> None:
        """Take over what another configuration says; what is as it was goes on undisturbed."""
        there = {one.settings: one for one in self._all}
        kept = [there.pop(one) if one in there else self._made(one) for one in settings]
        new = [one for one in kept if one not in self._all]
        self._all = kept
        self._name_inputs(settings)

        def begin(_: object) -> None:
            for one in new:
                if self.running and one in self._all:
                    one.start()

        # One of the same name may still be at work.
        stopped = DeferredList([one.stop() for one in there.values()], consumeErrors=True)
        stopped.addCallback(begin)

    def statuses(self) -> list[IntegrationStatus]:
        """How each stands."""
        return [one.status() for one in self._all]

    def find(self, kind: Kind, name: str) -> Integration[Any] | None:
        """The one of this kind and name, None where the configuration has none."""
        for one in self._all:
            if (one.kind, one.settings.name) == (kind, name):
                return one
        return None

    def _name_inputs(self, settings: IntegrationsSettings) -> None:
        self._context.input_names.clear()
        self._context.input_names.update(one.name for one in settings.inputs)

    def _made(self, settings: IntegrationSettings) -> Integration[Any]:
        return KINDS[type(settings)](settings, self._context)
