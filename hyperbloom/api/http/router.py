"""From a method and a path to the endpoint that answers: what a route says, and how it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hyperbloom.api.http.access import Rights
from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.problems import Problem
from hyperbloom.errors import ErrorKind

__all__ = ["Endpoint", "MethodNotAllowed", "Route", "Router"]

Endpoint = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` holds `{name}` where a segment is an argument; `-` as a feed is the default one.

    is_open: needs no token. is_page: holds nothing of the node's, and links to it may stand on
    other sites. is_metrics: the token for metrics is enough. The rest is for the description
    (`openapi`): the types of `body` and `answer`, the names of `query`, the good `statuses`, and
    the `problems` that requests of its kind do not have in common.
    """

    method: str
    path: str
    endpoint: Endpoint
    is_open: bool = False
    is_page: bool = False
    is_metrics: bool = False
    body: Any = None
    answer: Any = dict[str, Any]
    query: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    media_types: tuple[str, ...] = ("application/json",)
    problems: tuple[ErrorKind, ...] = ()

    @property
    def needs(self) -> Rights:
        """What a request must be allowed to."""
        if self.is_open or self.is_page:
            return Rights.NONE
        if self.is_metrics:
            return Rights.METRICS
        return Rights.READ if self.method == "GET" else Rights.ALL


_ARGUMENT = "{}"


class MethodNotAllowed(Problem):
    """The path is there, the method is not; `allowed` are the methods that are."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(ErrorKind.METHOD_NOT_ALLOWED, f"this path knows {', '.join(allowed)} only")
        self.allowed = allowed


class _Branch:
    __slots__ = ("branches", "routes")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch] = {}
        self.routes: dict[str, Route] = {}


class Router:
    """Finds the route of a method and a path, in time that does not grow with the table."""

    def __init__(self, routes: Iterable[Route]) -> None:
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
                raise Problem(ErrorKind.NOT_FOUND, "there is nothing at this path")
            branch = following
        route = branch.routes.get(method)
        if route is None:
            if branch.routes:
                raise MethodNotAllowed(tuple(branch.routes))
            raise Problem(ErrorKind.NOT_FOUND, "there is nothing at this path")
        return route, arguments
