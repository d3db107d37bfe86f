"""Every path of the API, its methods and who answers them: one table, one version a prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hyperbloom.api import schemas
from hyperbloom.api.endpoints import (
    discovery,
    forgetting,
    node,
    object_types,
    objects,
    owned_feeds,
    reload,
    sessions,
    status_page,
    status_stream,
    trust,
    values,
    wait_synced,
    watch,
    watch_objects,
)
from hyperbloom.api.http import openapi
from hyperbloom.api.http.access import Rights
from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.monitoring import metrics
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.replication.status import NodeStatus
from hyperbloom.store import VerifyReport

__all__ = ["ROUTER", "ROUTES", "MethodNotAllowed", "Route", "Router"]

Endpoint = Callable[[Call], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """`path` holds `{name}` where a segment is an argument; `-` as a feed is the default one.

    is_open: needs no token. is_page: holds nothing of the node's, and links to it may stand on
    other sites. The rest is for the description (`openapi`): the types of `body` and `answer`, the
    names of `query`, the good `statuses`, and the `problems` that requests of its kind do not
    have in common.
    """

    method: str
    path: str
    endpoint: Endpoint
    is_open: bool = False
    is_page: bool = False
    body: Any = None
    answer: Any = dict[str, Any]
    query: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    media_types: tuple[str, ...] = ("application/json",)
    problems: tuple[ProblemKind, ...] = ()

    @property
    def needs(self) -> Rights:
        """What a request must be allowed to."""
        if self.is_open or self.is_page:
            return Rights.NONE
        return Rights.READ if self.method == "GET" else Rights.ALL


_CREATED = (201,)
_TEXT = ("text/plain", "application/openmetrics-text")
_EVENTS = ("text/event-stream",)
_STORE = (ProblemKind.STORE, ProblemKind.STORE_FULL)
_TRUST = (ProblemKind.NOT_TRUSTED, ProblemKind.BAD_CHAIN, ProblemKind.STORE_FULL)
_RANGE = ("start", "end")
_POOL = (
    ProblemKind.NOT_FOUND,
    ProblemKind.UNKNOWN_OBJECT,
    ProblemKind.BAD_REQUEST,
    ProblemKind.CONFLICT,
    ProblemKind.STORE_FULL,
)

#: A table to be read across, so its lines are longer than others.
# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET", "/", status_page.show_page, is_page=True),
    Route("GET", "/status.css", status_page.show_style, is_page=True),
    Route("GET", "/status.js", status_page.show_script, is_page=True),
    Route("GET", "/health", metrics.show_health, is_open=True, answer=schemas.HealthForm,
          statuses=(200, 503)),
    Route("GET", "/metrics", metrics.show_metrics, answer=str, media_types=_TEXT),
    Route("GET", "/v1/openapi.json", openapi.show_description),
    Route("GET", "/v1/ping", node.ping, answer=schemas.PingForm),
    Route("GET", "/v1/status", node.status, answer=NodeStatus),
    Route("GET", "/v1/live", status_stream.watch_node, answer=str, media_types=_EVENTS),
    Route("GET", "/v1/peers", node.list_peers, answer=node.PeersForm,
          query=("feed", "offset", "limit")),
    Route("GET", "/v1/discovery", discovery.show_discovery),
    Route("POST", "/v1/snapshots", node.take_snapshot, body=schemas.TargetForm, statuses=_CREATED,
          problems=(ProblemKind.CONFLICT, *_STORE)),
    Route("POST", "/v1/verify", node.verify_store, answer=VerifyReport,
          problems=(ProblemKind.STORE,)),
    Route("POST", "/v1/reload", reload.reload_config, body=schemas.NothingForm,
          problems=(ProblemKind.NOT_FOUND, ProblemKind.BAD_CONFIG, ProblemKind.STORE)),
    Route("POST", "/v1/invitations", trust.accept_invitation, body=schemas.JoinForm,
          answer=schemas.FeedForm, statuses=_CREATED,
          problems=(ProblemKind.BAD_INVITATION, ProblemKind.EXPIRED, *_TRUST)),
    Route("POST", "/v1/sessions", sessions.offer_session, body=schemas.NothingForm,
          answer=schemas.SessionOfferForm, statuses=_CREATED, problems=(ProblemKind.CONFLICT,)),
    Route("POST", "/v1/sessions/claim", sessions.claim_session, is_open=True, body=schemas.CodeForm,
          answer=schemas.SessionForm, statuses=_CREATED, problems=(ProblemKind.CONFLICT,)),
    Route("GET", "/v1/denied", trust.list_denied, answer=schemas.DenyListForm),
    Route("POST", "/v1/denied", trust.deny_key, body=schemas.DenyForm,
          answer=schemas.DeniedKeyForm, statuses=_CREATED, problems=_STORE),
    Route("DELETE", "/v1/denied/{key}", trust.allow_key, answer=schemas.AllowedKeyForm,
          problems=(ProblemKind.BAD_REQUEST, ProblemKind.NOT_FOUND, *_STORE)),
    Route("GET", "/v1/feeds", node.list_feeds, answer=schemas.FeedsForm),
    Route("POST", "/v1/feeds", node.join_feed, body=schemas.FeedSettingsForm,
          answer=schemas.FeedForm, statuses=_CREATED, problems=_STORE),
    Route("POST", "/v1/owned", owned_feeds.create_feed, body=owned_feeds.CreateForm,
          answer=schemas.FeedForm, statuses=_CREATED, problems=(ProblemKind.BAD_CONFIG, *_STORE)),
    Route("POST", "/v1/owned/read", owned_feeds.read_keys, body=schemas.NothingForm,
          answer=schemas.FeedsForm, problems=(ProblemKind.BAD_CONFIG, *_STORE)),
    Route("GET", "/v1/feeds/{feed}", node.show_feed, answer=schemas.FeedForm),
    Route("DELETE", "/v1/feeds/{feed}", node.leave_feed, answer=None, statuses=(204,),
          query=("delete_key",), problems=(ProblemKind.BAD_REQUEST, ProblemKind.BAD_CONFIG)),
    Route("POST", "/v1/feeds/{feed}/release", owned_feeds.release_key, body=owned_feeds.ReleaseForm,
          answer=schemas.IssuedForm, problems=(ProblemKind.BAD_CONFIG, *_TRUST)),
    Route("POST", "/v1/feeds/{feed}/copy", owned_feeds.copy_values, body=owned_feeds.CopyForm,
          answer=owned_feeds.CopiedForm, problems=(ProblemKind.NOT_TRUSTED, *_STORE)),
    Route("GET", "/v1/feeds/{feed}/values", values.range_values, answer=schemas.RangeForm,
          query=(*_RANGE, "limit")),
    Route("POST", "/v1/feeds/{feed}/values", values.put_values, body=schemas.ValuesForm,
          answer=schemas.PutForm, problems=(ProblemKind.NOT_TRUSTED, ProblemKind.STORE_FULL)),
    Route("POST", "/v1/feeds/{feed}/values/range", values.post_range, body=values.RangeAskedForm,
          answer=schemas.RangeForm),
    Route("POST", "/v1/feeds/{feed}/has", values.has_values, body=schemas.ValuesForm,
          answer=schemas.HasForm),
    Route("GET", "/v1/feeds/{feed}/count", values.count_values, answer=schemas.CountForm),
    Route("POST", "/v1/feeds/{feed}/fetch", values.fetch_values, body=schemas.FetchForm,
          answer=schemas.FetchedForm, problems=(ProblemKind.TOO_MANY, ProblemKind.TIMEOUT)),
    Route("GET", "/v1/feeds/{feed}/by/{key}", forgetting.values_by, query=("after", "limit"),
          problems=(ProblemKind.BAD_REQUEST,)),
    Route("POST", "/v1/feeds/{feed}/forget", forgetting.forget_values, body=schemas.ForgetForm,
          answer=schemas.StepForm, problems=(ProblemKind.NOT_TRUSTED, *_STORE)),
    Route("GET", "/v1/feeds/{feed}/forgotten", forgetting.list_forgotten,
          query=("start", "end", "limit")),
    Route("POST", "/v1/feeds/{feed}/forgotten/range", forgetting.post_forgotten_range,
          body=values.RangeAskedForm),
    Route("POST", "/v1/feeds/{feed}/forgotten/undo", forgetting.undo_forgetting,
          body=schemas.SelectionForm, answer=schemas.StepForm, problems=_STORE),
    Route("DELETE", "/v1/feeds/{feed}/forgotten/hashes", forgetting.drop_hashes, answer=None,
          statuses=(204,), problems=_STORE),
    Route("POST", "/v1/feeds/{feed}/synced", wait_synced.wait_synced, body=schemas.SyncedForm,
          problems=(ProblemKind.UNKNOWN_PEER, ProblemKind.NOT_IN_SYNC, ProblemKind.TOO_MANY)),
    Route("GET", "/v1/feeds/{feed}/watch", watch.watch_values, answer=str,
          query=(*_RANGE, "after"), media_types=_EVENTS),
    Route("POST", "/v1/feeds/{feed}/watch/range", watch.post_watch_range,
          body=watch.WatchAskedForm, answer=str, media_types=_EVENTS),
    Route("GET", "/v1/feeds/{feed}/discovery", discovery.show_feed_discovery),
    Route("GET", "/v1/feeds/{feed}/links", trust.list_links, answer=schemas.LinksForm),
    Route("POST", "/v1/feeds/{feed}/links", trust.issue_link, body=schemas.TrusteeForm,
          answer=schemas.IssuedForm, statuses=_CREATED, problems=_TRUST),
    Route("POST", "/v1/feeds/{feed}/chains", trust.add_chain, body=schemas.LinksGivenForm,
          answer=schemas.ChainAddedForm, problems=(ProblemKind.EXPIRED, *_TRUST)),
    Route("GET", "/v1/feeds/{feed}/members", trust.list_members, answer=schemas.MembersForm),
    Route("POST", "/v1/feeds/{feed}/invitations", trust.invite, body=schemas.InviteForm,
          answer=schemas.InvitationForm, statuses=_CREATED, problems=_TRUST),
    Route("GET", "/v1/objects", objects.list_objects, answer=objects.ObjectsForm,
          problems=_POOL),
    Route("POST", "/v1/objects", objects.add_object, body=objects.NewObjectForm,
          answer=objects.ObjectForm, statuses=_CREATED,
          problems=(ProblemKind.TOO_MANY, *_POOL)),
    Route("GET", "/v1/objects/watch", watch_objects.watch_objects, answer=str,
          media_types=_EVENTS, problems=_POOL),
    Route("GET", "/v1/objects/types", object_types.list_types, answer=object_types.TypesForm,
          problems=(ProblemKind.NOT_FOUND,)),
    Route("POST", "/v1/objects/types", object_types.declare_type, body=object_types.NewTypeForm,
          answer=object_types.TypeForm, statuses=_CREATED, problems=_POOL),
    Route("DELETE", "/v1/objects/types/{name}", object_types.undeclare_type, answer=None,
          statuses=(204,), problems=_POOL),
    Route("GET", "/v1/objects/{hash}", objects.show_object, answer=objects.ObjectForm,
          problems=_POOL),
    Route("PATCH", "/v1/objects/{hash}", objects.change_object, body=objects.ObjectChangeForm,
          answer=objects.ObjectForm,
          problems=_POOL),
    Route("DELETE", "/v1/objects/{hash}", objects.remove_object, answer=None, statuses=(204,),
          problems=_POOL),
)
# fmt: on

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

    def __init__(self, routes: tuple[Route, ...]) -> None:
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


#: Made once: a node serves the API in two places.
ROUTER = Router(ROUTES)
