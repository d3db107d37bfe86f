"""Every path of the API, its methods and who answers them: one table, one version a prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hyperbloom.api import (
    discovery,
    forgetting,
    forms,
    live,
    metrics,
    nodes,
    object_types,
    objects,
    openapi,
    ownership,
    page,
    reload,
    sessions,
    synced,
    trust,
    values,
    watch,
    watch_objects,
)
from hyperbloom.api.access import Rights
from hyperbloom.api.call import Answer, Call
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.replication.status import NodeStatus
from hyperbloom.store import VerifyReport

__all__ = ["ROUTES", "MethodNotAllowed", "Route", "Router"]

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
    Route("GET", "/", page.show_page, is_page=True),
    Route("GET", "/status.css", page.show_style, is_page=True),
    Route("GET", "/status.js", page.show_script, is_page=True),
    Route("GET", "/health", metrics.show_health, is_open=True, answer=forms.HealthForm,
          statuses=(200, 503)),
    Route("GET", "/metrics", metrics.show_metrics, answer=str, media_types=_TEXT),
    Route("GET", "/v1/openapi.json", openapi.show_description),
    Route("GET", "/v1/ping", nodes.ping, answer=forms.PingForm),
    Route("GET", "/v1/status", nodes.status, answer=NodeStatus),
    Route("GET", "/v1/live", live.watch_node, answer=str, media_types=_EVENTS),
    Route("GET", "/v1/peers", nodes.list_peers, answer=nodes.PeersForm,
          query=("feed", "offset", "limit")),
    Route("GET", "/v1/discovery", discovery.show_discovery),
    Route("POST", "/v1/snapshots", nodes.take_snapshot, body=forms.TargetForm, statuses=_CREATED,
          problems=(ProblemKind.CONFLICT, *_STORE)),
    Route("POST", "/v1/verify", nodes.verify_store, answer=VerifyReport,
          problems=(ProblemKind.STORE,)),
    Route("POST", "/v1/reload", reload.reload_config, body=forms.NothingForm,
          problems=(ProblemKind.NOT_FOUND, ProblemKind.BAD_CONFIG, ProblemKind.STORE)),
    Route("POST", "/v1/invitations", trust.accept_invitation, body=forms.JoinForm,
          answer=forms.FeedForm, statuses=_CREATED,
          problems=(ProblemKind.BAD_INVITATION, ProblemKind.EXPIRED, *_TRUST)),
    Route("POST", "/v1/sessions", sessions.offer_session, body=forms.NothingForm,
          answer=forms.SessionOfferForm, statuses=_CREATED, problems=(ProblemKind.CONFLICT,)),
    Route("POST", "/v1/sessions/claim", sessions.claim_session, is_open=True, body=forms.CodeForm,
          answer=forms.SessionForm, statuses=_CREATED, problems=(ProblemKind.CONFLICT,)),
    Route("GET", "/v1/denied", trust.list_denied, answer=forms.DenyListForm),
    Route("POST", "/v1/denied", trust.deny_key, body=forms.DenyForm,
          answer=forms.DeniedKeyForm, statuses=_CREATED, problems=_STORE),
    Route("DELETE", "/v1/denied/{key}", trust.allow_key, answer=forms.AllowedKeyForm,
          problems=(ProblemKind.BAD_REQUEST, ProblemKind.NOT_FOUND, *_STORE)),
    Route("GET", "/v1/feeds", nodes.list_feeds, answer=forms.FeedsForm),
    Route("POST", "/v1/feeds", nodes.join_feed, body=forms.FeedSettingsForm, answer=forms.FeedForm,
          statuses=_CREATED, problems=_STORE),
    Route("POST", "/v1/owned", ownership.create_feed, body=ownership.CreateForm,
          answer=forms.FeedForm, statuses=_CREATED, problems=(ProblemKind.BAD_CONFIG, *_STORE)),
    Route("POST", "/v1/owned/read", ownership.read_keys, body=forms.NothingForm,
          answer=forms.FeedsForm, problems=(ProblemKind.BAD_CONFIG, *_STORE)),
    Route("GET", "/v1/feeds/{feed}", nodes.show_feed, answer=forms.FeedForm),
    Route("DELETE", "/v1/feeds/{feed}", nodes.leave_feed, answer=None, statuses=(204,),
          query=("delete_key",), problems=(ProblemKind.BAD_REQUEST, ProblemKind.BAD_CONFIG)),
    Route("POST", "/v1/feeds/{feed}/release", ownership.release_key, body=ownership.ReleaseForm,
          answer=forms.IssuedForm, problems=(ProblemKind.BAD_CONFIG, *_TRUST)),
    Route("POST", "/v1/feeds/{feed}/copy", ownership.copy_values, body=ownership.CopyForm,
          answer=ownership.CopiedForm, problems=(ProblemKind.NOT_TRUSTED, *_STORE)),
    Route("GET", "/v1/feeds/{feed}/values", values.range_values, answer=forms.RangeForm,
          query=(*_RANGE, "limit")),
    Route("POST", "/v1/feeds/{feed}/values", values.put_values, body=forms.ValuesForm,
          answer=forms.PutForm, problems=(ProblemKind.NOT_TRUSTED, ProblemKind.STORE_FULL)),
    Route("POST", "/v1/feeds/{feed}/values/range", values.post_range, body=values.RangeAskedForm,
          answer=forms.RangeForm),
    Route("POST", "/v1/feeds/{feed}/has", values.has_values, body=forms.ValuesForm,
          answer=forms.HasForm),
    Route("GET", "/v1/feeds/{feed}/count", values.count_values, answer=forms.CountForm),
    Route("POST", "/v1/feeds/{feed}/fetch", values.fetch_values, body=forms.FetchForm,
          answer=forms.FetchedForm, problems=(ProblemKind.TOO_MANY, ProblemKind.TIMEOUT)),
    Route("GET", "/v1/feeds/{feed}/by/{key}", forgetting.values_by, query=("after", "limit"),
          problems=(ProblemKind.BAD_REQUEST,)),
    Route("POST", "/v1/feeds/{feed}/forget", forgetting.forget_values, body=forms.ForgetForm,
          answer=forms.StepForm, problems=(ProblemKind.NOT_TRUSTED, *_STORE)),
    Route("GET", "/v1/feeds/{feed}/forgotten", forgetting.list_forgotten,
          query=("start", "end", "limit")),
    Route("POST", "/v1/feeds/{feed}/forgotten/range", forgetting.post_forgotten_range,
          body=values.RangeAskedForm),
    Route("POST", "/v1/feeds/{feed}/forgotten/undo", forgetting.undo_forgetting,
          body=forms.SelectionForm, answer=forms.StepForm, problems=_STORE),
    Route("DELETE", "/v1/feeds/{feed}/forgotten/hashes", forgetting.drop_hashes, answer=None,
          statuses=(204,), problems=_STORE),
    Route("POST", "/v1/feeds/{feed}/synced", synced.wait_synced, body=forms.SyncedForm,
          problems=(ProblemKind.UNKNOWN_PEER, ProblemKind.NOT_IN_SYNC, ProblemKind.TOO_MANY)),
    Route("GET", "/v1/feeds/{feed}/watch", watch.watch_values, answer=str,
          query=(*_RANGE, "after"), media_types=_EVENTS),
    Route("POST", "/v1/feeds/{feed}/watch/range", watch.post_watch_range,
          body=watch.WatchAskedForm, answer=str, media_types=_EVENTS),
    Route("GET", "/v1/feeds/{feed}/discovery", discovery.show_feed_discovery),
    Route("GET", "/v1/feeds/{feed}/links", trust.list_links, answer=forms.LinksForm),
    Route("POST", "/v1/feeds/{feed}/links", trust.issue_link, body=forms.TrusteeForm,
          answer=forms.IssuedForm, statuses=_CREATED, problems=_TRUST),
    Route("POST", "/v1/feeds/{feed}/chains", trust.add_chain, body=forms.LinksGivenForm,
          answer=forms.ChainAddedForm, problems=(ProblemKind.EXPIRED, *_TRUST)),
    Route("GET", "/v1/feeds/{feed}/members", trust.list_members, answer=forms.MembersForm),
    Route("POST", "/v1/feeds/{feed}/invitations", trust.invite, body=forms.InviteForm,
          answer=forms.InvitationForm, statuses=_CREATED, problems=_TRUST),
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
