"""Every path of the API, its methods and who answers them: one table, one version a prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from hyperbloom.api import discovery, metrics, nodes, sessions, trust, values, watch
from hyperbloom.api.access import Rights
from hyperbloom.api.call import Answer, Call
from hyperbloom.api.problems import Problem, ProblemKind

__all__ = ["ROUTES", "MethodNotAllowed", "Route", "Router"]

Endpoint = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` holds `{name}` where a segment is an argument; `-` as a feed is the default one.

    is_open: needs no token. is_page: holds nothing of the node's, and links to it may stand on
    other sites.
    """

    method: str
    path: str
    endpoint: Endpoint
    is_open: bool = False
    is_page: bool = False

    @property
    def needs(self) -> Rights:
        """What a request must be allowed to."""
        if self.is_open or self.is_page:
            return Rights.NONE
        return Rights.READ if self.method == "GET" else Rights.ALL


ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", metrics.show_health, is_open=True),
    Route("GET", "/metrics", metrics.show_metrics),
    Route("GET", "/v1/ping", nodes.ping),
    Route("GET", "/v1/status", nodes.status),
    Route("GET", "/v1/peers", nodes.list_peers),
    Route("GET", "/v1/discovery", discovery.show_discovery),
    Route("POST", "/v1/snapshots", nodes.take_snapshot),
    Route("POST", "/v1/verify", nodes.verify_store),
    Route("POST", "/v1/invitations", trust.accept_invitation),
    Route("POST", "/v1/sessions", sessions.offer_session),
    Route("POST", "/v1/sessions/claim", sessions.claim_session, is_open=True),
    Route("GET", "/v1/feeds", nodes.list_feeds),
    Route("POST", "/v1/feeds", nodes.join_feed),
    Route("GET", "/v1/feeds/{feed}", nodes.show_feed),
    Route("DELETE", "/v1/feeds/{feed}", nodes.leave_feed),
    Route("GET", "/v1/feeds/{feed}/values", values.range_values),
    Route("POST", "/v1/feeds/{feed}/values", values.put_values),
    Route("POST", "/v1/feeds/{feed}/has", values.has_values),
    Route("GET", "/v1/feeds/{feed}/count", values.count_values),
    Route("POST", "/v1/feeds/{feed}/fetch", values.fetch_values),
    Route("GET", "/v1/feeds/{feed}/watch", watch.watch_values),
    Route("GET", "/v1/feeds/{feed}/discovery", discovery.show_feed_discovery),
    Route("GET", "/v1/feeds/{feed}/links", trust.list_links),
    Route("POST", "/v1/feeds/{feed}/links", trust.issue_link),
    Route("POST", "/v1/feeds/{feed}/chains", trust.add_chain),
    Route("GET", "/v1/feeds/{feed}/members", trust.list_members),
    Route("POST", "/v1/feeds/{feed}/invitations", trust.invite),
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
    __slots__ = ("branches", "routes")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch] = {}
        self.routes: dict[str, Route] = {}


class Router:
    """Finds the route of a method and a path, in time that does not grow with the table."""

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._root = _Branch()
        for route in routes:
            branch = self._root
            for segment in route.path[1:].split("/"):
                name = _ARGUMENT if segment.startswith("{") else segment
                branch = branch.branches.setdefault(name, _Branch())
            branch.routes[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, list[str]]:
        """The route and the arguments of the path; raises `Problem`."""
        branch, arguments = self._root, []
        for segment in path[1:].split("/"):
            following = branch.branches.get(segment)
            if following is None:
                following = branch.branches.get(_ARGUMENT)
                arguments.append(unquote(segment))
            if following is None or not (segment or path == "/"):
                raise Problem(ProblemKind.NOT_FOUND, "there is nothing at this path")
            branch = following
        route = branch.routes.get(method)
        if route is None:
            if branch.routes:
                raise MethodNotAllowed(tuple(branch.routes))
            raise Problem(ProblemKind.NOT_FOUND, "there is nothing at this path")
        return route, arguments
