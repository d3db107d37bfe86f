"""Every path of the API, its methods and who answers them: one table, one version a prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from hyperbloom.api import (
    discovery,
    forgetting,
    nodes,
    objects,
    trust,
    values,
    watch,
    watch_objects,
)
from hyperbloom.api.call import Answer, Call
from hyperbloom.api.problems import Problem, ProblemKind

__all__ = ["ROUTES", "MethodNotAllowed", "Route", "Router"]

Endpoint = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` holds `{name}` where a segment is an argument; `-` as a feed is the default one."""

    method: str
    path: str
    endpoint: Endpoint


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/ping", nodes.ping),
    Route("GET", "/v1/status", nodes.status),
    Route("GET", "/v1/peers", nodes.list_peers),
    Route("GET", "/v1/discovery", discovery.show_discovery),
    Route("POST", "/v1/snapshots", nodes.take_snapshot),
    Route("POST", "/v1/verify", nodes.verify_store),
    Route("POST", "/v1/invitations", trust.accept_invitation),
    Route("GET", "/v1/denied", trust.list_denied),
    Route("POST", "/v1/denied", trust.deny_key),
    Route("DELETE", "/v1/denied/{key}", trust.allow_key),
    Route("GET", "/v1/feeds", nodes.list_feeds),
    Route("POST", "/v1/feeds", nodes.join_feed),
    Route("GET", "/v1/feeds/{feed}", nodes.show_feed),
    Route("DELETE", "/v1/feeds/{feed}", nodes.leave_feed),
    Route("GET", "/v1/feeds/{feed}/values", values.range_values),
    Route("POST", "/v1/feeds/{feed}/values", values.put_values),
    Route("POST", "/v1/feeds/{feed}/has", values.has_values),
    Route("GET", "/v1/feeds/{feed}/count", values.count_values),
    Route("POST", "/v1/feeds/{feed}/fetch", values.fetch_values),
    Route("GET", "/v1/feeds/{feed}/by/{key}", forgetting.values_by),
    Route("POST", "/v1/feeds/{feed}/forget", forgetting.forget_values),
    Route("GET", "/v1/feeds/{feed}/forgotten", forgetting.list_forgotten),
    Route("POST", "/v1/feeds/{feed}/forgotten/undo", forgetting.undo_forgetting),
    Route("DELETE", "/v1/feeds/{feed}/forgotten/hashes", forgetting.drop_hashes),
    Route("GET", "/v1/feeds/{feed}/watch", watch.watch_values),
    Route("GET", "/v1/feeds/{feed}/discovery", discovery.show_feed_discovery),
    Route("GET", "/v1/feeds/{feed}/links", trust.list_links),
    Route("POST", "/v1/feeds/{feed}/links", trust.issue_link),
    Route("POST", "/v1/feeds/{feed}/chains", trust.add_chain),
    Route("GET", "/v1/feeds/{feed}/members", trust.list_members),
    Route("POST", "/v1/feeds/{feed}/invitations", trust.invite),
    Route("GET", "/v1/objects", objects.list_objects),
    Route("POST", "/v1/objects", objects.add_object),
    Route("GET", "/v1/objects/watch", watch_objects.watch_objects),
    Route("GET", "/v1/objects/{hash}", objects.show_object),
    Route("PATCH", "/v1/objects/{hash}", objects.change_object),
    Route("DELETE", "/v1/objects/{hash}", objects.remove_object),
)

_ARGUMENT = "{}"


class MethodNotAllowed(Problem):
    """The path is there, the method is not; `allowed` are the methods that are."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(
            ProblemKind.METHOD_NOT_ALLOWED, f"this path knows {', '.join(allowed)} only"
        )
        self.allowed = allowed


class _Branch:
    __slots__ = ("branches", "endpoints")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch] = {}
        self.endpoints: dict[str, Endpoint] = {}


class Router:
    """Finds the endpoint of a method and a path, in time that does not grow with the table."""

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._root = _Branch()
        for route in routes:
            branch = self._root
            for segment in route.path[1:].split("/"):
                name = _ARGUMENT if segment.startswith("{") else segment
                branch = branch.branches.setdefault(name, _Branch())
            branch.endpoints[route.method] = route.endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, list[str]]:
        """The endpoint and the arguments of the path; raises `Problem`."""
        branch, arguments = self._root, []
        for segment in path[1:].split("/"):
            following = branch.branches.get(segment)
            if following is None:
                following = branch.branches.get(_ARGUMENT)
                arguments.append(unquote(segment))
            if following is None or not segment:
                raise Problem(ProblemKind.NOT_FOUND, "there is nothing at this path")
            branch = following
        endpoint = branch.endpoints.get(method)
        if endpoint is None:
            if branch.endpoints:
                raise MethodNotAllowed(tuple(branch.endpoints))
            raise Problem(ProblemKind.NOT_FOUND, "there is nothing at this path")
        return endpoint, arguments
