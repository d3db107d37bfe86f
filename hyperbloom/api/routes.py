"""Every path of the API, its methods and who answers them: one table, one version a prefix."""

from __future__ import annotations

import json
from functools import cache

from hyperbloom.api.endpoints import (
    discovery,
    feeds,
    forgetting,
    integrations,
    invitations,
    names,
    node,
    noise,
    objects,
    status_page,
    status_stream,
    trust,
    values,
    watch,
    watch_objects,
)
from hyperbloom.api.http.openapi import describe
from hyperbloom.api.http.request import BOUNDS, Answer, Call
from hyperbloom.api.http.router import Route, Router
from hyperbloom.api.schemas import answers, bodies
from hyperbloom.api.schemas import integrations as integration_forms
from hyperbloom.api.schemas import objects as object_forms
from hyperbloom.errors import ErrorKind
from hyperbloom.replication.status import NodeStatus
from hyperbloom.store.records import VerifyReport

__all__ = ["ROUTER", "ROUTES"]


@cache
def _description() -> bytes:
    return json.dumps(describe(ROUTES)).encode()


def show_description(call: Call) -> Answer:
    """This description."""
    return _description()


_CREATED = (201,)
_TEXT = ("text/plain", "application/openmetrics-text")
_EVENTS = ("text/event-stream",)
_STORE = (ErrorKind.STORE, ErrorKind.STORE_FULL)
_TRUST = (ErrorKind.NOT_TRUSTED, ErrorKind.BAD_CHAIN, ErrorKind.STORE_FULL)
_POOL = (
    ErrorKind.NOT_FOUND,
    ErrorKind.UNKNOWN_OBJECT,
    ErrorKind.BAD_REQUEST,
    ErrorKind.CONFLICT,
    ErrorKind.STORE_FULL,
)

_OF_A_NAME = (ErrorKind.UNKNOWN_INTEGRATION,)
_OF_A_RUN = (*_OF_A_NAME, ErrorKind.FAILED, ErrorKind.NOT_TRUSTED, *_STORE)

#: A table to be read across, so its lines are longer than others.
# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET", "/", status_page.show_page, is_page=True),
    Route("GET", "/status.css", status_page.show_style, is_page=True),
    Route("GET", "/scripts/{script}", status_page.show_script, is_page=True,
          problems=(ErrorKind.NOT_FOUND,)),
    Route("GET", "/health", node.show_health, is_open=True, answer=answers.HealthForm,
          statuses=(200, 503)),
    Route("GET", "/metrics", node.show_metrics, is_metrics=True, answer=str, media_types=_TEXT),
    Route("GET", "/v1/openapi.json", show_description),
    Route("GET", "/v1/ping", node.ping, answer=answers.PingForm),
    Route("GET", "/v1/status", node.status, answer=NodeStatus),
    Route("GET", "/v1/live", status_stream.watch_node, answer=str, media_types=_EVENTS),
    Route("GET", "/v1/peers", node.list_peers, answer=node.PeersForm,
          query=("feed", "offset", "limit")),
    Route("GET", "/v1/history", node.show_history, answer=answers.HistoryForm,
          query=("span", "feed"), problems=(ErrorKind.BAD_REQUEST,)),
    Route("GET", "/v1/discovery", discovery.show_discovery),
    Route("POST", "/v1/snapshots", node.take_snapshot, body=bodies.TargetForm, statuses=_CREATED,
          problems=(ErrorKind.CONFLICT, *_STORE)),
    Route("POST", "/v1/verify", node.verify_store, answer=VerifyReport,
          problems=(ErrorKind.STORE,)),
    Route("GET", "/v1/work", node.list_work, answer=answers.WorkListForm),
    Route("POST", "/v1/reload", node.reload_config, body=bodies.NothingForm,
          problems=(ErrorKind.NOT_FOUND, ErrorKind.BAD_CONFIG, ErrorKind.STORE)),
    Route("POST", "/v1/invitations", invitations.accept_invitation, body=bodies.JoinForm,
          answer=answers.JoinedForm, statuses=_CREATED,
          problems=(ErrorKind.BAD_INVITATION, ErrorKind.EXPIRED, ErrorKind.CONFLICT, *_TRUST)),
    Route("POST", "/v1/sessions", status_page.offer_session, body=bodies.NothingForm,
          answer=answers.SessionOfferForm, statuses=_CREATED, problems=(ErrorKind.CONFLICT,)),
    Route("POST", "/v1/sessions/claim", status_page.claim_session, is_open=True,
          body=bodies.CodeForm, answer=answers.SessionForm, statuses=_CREATED,
          problems=(ErrorKind.CONFLICT,)),
    Route("GET", "/v1/keys/{key}", names.show_key, answer=answers.KeyFoundForm,
          problems=(ErrorKind.UNKNOWN_PEER,)),
    Route("GET", "/v1/names", names.list_names, answer=answers.NamesForm),
    Route("POST", "/v1/names", names.name_key, body=bodies.NameForm,
          answer=answers.KeyNamedForm, statuses=_CREATED,
          problems=(ErrorKind.UNKNOWN_PEER, ErrorKind.CONFLICT, ErrorKind.TOO_MANY, *_STORE)),
    Route("DELETE", "/v1/names/{key}", names.unname_key, answer=answers.KeyNamedForm,
          problems=(ErrorKind.UNKNOWN_PEER, *_STORE)),
    Route("GET", "/v1/denied", trust.list_denied, answer=answers.DenyListForm),
    Route("POST", "/v1/denied", trust.deny_key, body=bodies.DenyForm,
          answer=answers.DeniedKeyForm, statuses=_CREATED,
          problems=(ErrorKind.UNKNOWN_PEER, *_STORE)),
    Route("DELETE", "/v1/denied/{key}", trust.allow_key, answer=answers.AllowedKeyForm,
          problems=(ErrorKind.UNKNOWN_PEER, ErrorKind.NOT_FOUND, *_STORE)),
    Route("GET", "/v1/noise", noise.list_keys, answer=answers.NoiseKeysForm),
    Route("DELETE", "/v1/noise/{key}", noise.forget_key, answer=answers.NoiseForgottenForm,
          problems=(ErrorKind.UNKNOWN_PEER, ErrorKind.NOT_FOUND, *_STORE)),
    Route("GET", "/v1/feeds", feeds.list_feeds, answer=answers.FeedsForm),
    Route("POST", "/v1/feeds", feeds.join_feed, body=bodies.FeedSettingsForm,
          answer=answers.FeedForm, statuses=_CREATED, problems=_STORE),
    Route("POST", "/v1/owned", feeds.create_feed, body=bodies.CreateForm,
          answer=answers.FeedForm, statuses=_CREATED, problems=(ErrorKind.BAD_CONFIG, *_STORE)),
    Route("POST", "/v1/owned/read", feeds.read_keys, body=bodies.NothingForm,
          answer=answers.FeedsForm, problems=(ErrorKind.BAD_CONFIG, *_STORE)),
    Route("GET", "/v1/feeds/{feed}", feeds.show_feed, answer=answers.FeedForm),
    Route("DELETE", "/v1/feeds/{feed}", feeds.leave_feed, answer=None, statuses=(204,),
          query=("delete_key",), problems=(ErrorKind.BAD_REQUEST, ErrorKind.BAD_CONFIG)),
    Route("POST", "/v1/feeds/{feed}/release", feeds.release_key, body=bodies.ReleaseForm,
          answer=answers.IssuedForm, problems=(ErrorKind.BAD_CONFIG, *_TRUST)),
    Route("POST", "/v1/feeds/{feed}/copy", feeds.copy_values, body=bodies.CopyForm,
          answer=answers.CopiedForm, problems=(ErrorKind.NOT_TRUSTED, *_STORE)),
    Route("GET", "/v1/feeds/{feed}/values", values.range_values, answer=answers.RangeForm,
          query=(*BOUNDS, "limit")),
    Route("POST", "/v1/feeds/{feed}/values", values.put_values, body=bodies.ValuesForm,
          answer=answers.PutForm, problems=(ErrorKind.NOT_TRUSTED, ErrorKind.STORE_FULL)),
    Route("POST", "/v1/feeds/{feed}/values/range", values.post_range, body=bodies.PageForm,
          answer=answers.RangeForm),
    Route("GET", "/v1/feeds/{feed}/values/count", values.count_range,
          answer=answers.RangeCountForm, query=BOUNDS),
    Route("POST", "/v1/feeds/{feed}/values/count/range", values.post_count_range,
          body=bodies.BoundsForm, answer=answers.RangeCountForm),
    Route("GET", "/v1/feeds/{feed}/arrivals", values.list_arrivals, answer=answers.ArrivalsForm,
          query=("after", "limit")),
    Route("POST", "/v1/feeds/{feed}/has", values.has_values, body=bodies.ValuesForm,
          answer=answers.HasForm),
    Route("GET", "/v1/feeds/{feed}/count", values.count_values, answer=answers.CountForm),
    Route("POST", "/v1/feeds/{feed}/fetch", values.fetch_values, body=bodies.FetchForm,
          answer=answers.FetchedForm, problems=(ErrorKind.TOO_MANY, ErrorKind.TIMEOUT)),
    Route("GET", "/v1/feeds/{feed}/by/{key}", forgetting.values_by, query=("after", "limit"),
          problems=(ErrorKind.BAD_REQUEST, ErrorKind.UNKNOWN_PEER)),
    Route("POST", "/v1/feeds/{feed}/forget", forgetting.forget_values, body=bodies.ForgetForm,
          answer=answers.StepForm,
          problems=(ErrorKind.NOT_TRUSTED, ErrorKind.UNKNOWN_PEER, *_STORE)),
    Route("GET", "/v1/feeds/{feed}/forgotten", forgetting.list_forgotten,
          query=(*BOUNDS, "limit")),
    Route("POST", "/v1/feeds/{feed}/forgotten/range", forgetting.post_forgotten_range,
          body=bodies.PageForm),
    Route("POST", "/v1/feeds/{feed}/forgotten/undo", forgetting.undo_forgetting,
          body=bodies.SelectionForm, answer=answers.StepForm,
          problems=(ErrorKind.UNKNOWN_PEER, *_STORE)),
    Route("DELETE", "/v1/feeds/{feed}/forgotten/hashes", forgetting.drop_hashes, answer=None,
          statuses=(204,), problems=_STORE),
    Route("POST", "/v1/feeds/{feed}/synced", values.wait_synced, body=bodies.SyncedForm,
          problems=(ErrorKind.UNKNOWN_PEER, ErrorKind.NOT_IN_SYNC, ErrorKind.TOO_MANY)),
    Route("GET", "/v1/feeds/{feed}/watch", watch.watch_values, answer=str,
          query=(*BOUNDS, "after"), media_types=_EVENTS),
    Route("POST", "/v1/feeds/{feed}/watch/range", watch.post_watch_range,
          body=bodies.WatchForm, answer=str, media_types=_EVENTS),
    Route("GET", "/v1/feeds/{feed}/discovery", discovery.show_feed_discovery),
    Route("GET", "/v1/feeds/{feed}/links", trust.list_links, answer=answers.LinksForm),
    Route("POST", "/v1/feeds/{feed}/links", trust.issue_link, body=bodies.TrusteeForm,
          answer=answers.LinkIssuedForm, statuses=_CREATED,
          problems=(ErrorKind.UNKNOWN_PEER, *_TRUST)),
    Route("POST", "/v1/feeds/{feed}/chains", trust.add_chain, body=bodies.LinksGivenForm,
          answer=answers.ChainAddedForm, problems=(ErrorKind.EXPIRED, *_TRUST)),
    Route("GET", "/v1/feeds/{feed}/members", trust.list_members, answer=answers.MembersForm),
    Route("POST", "/v1/feeds/{feed}/invitations", invitations.invite, body=bodies.InviteForm,
          answer=answers.InvitationForm, statuses=_CREATED,
          problems=(ErrorKind.UNKNOWN_PEER, ErrorKind.CONFLICT, *_TRUST)),
    Route("GET", "/v1/outputs", integrations.OUTPUTS.list, answer=integration_forms.OutputsForm),
    Route("GET", "/v1/outputs/{integration}", integrations.OUTPUTS.show,
          answer=integration_forms.IntegrationForm, problems=_OF_A_NAME),
    Route("POST", "/v1/outputs/{integration}/run", integrations.OUTPUTS.run, body=bodies.RunForm,
          answer=integration_forms.IntegrationForm, problems=_OF_A_RUN),
    Route("GET", "/v1/inputs", integrations.INPUTS.list, answer=integration_forms.InputsForm),
    Route("GET", "/v1/inputs/{integration}", integrations.INPUTS.show,
          answer=integration_forms.IntegrationForm, problems=_OF_A_NAME),
    Route("POST", "/v1/inputs/{integration}/run", integrations.INPUTS.run, body=bodies.RunForm,
          answer=integration_forms.IntegrationForm, problems=_OF_A_RUN),
    Route("GET", "/v1/hooks", integrations.HOOKS.list, answer=integration_forms.HooksForm),
    Route("GET", "/v1/hooks/{integration}", integrations.HOOKS.show,
          answer=integration_forms.IntegrationForm, problems=_OF_A_NAME),
    Route("POST", "/v1/hooks/{integration}/run", integrations.HOOKS.run, body=bodies.RunForm,
          answer=integration_forms.IntegrationForm, problems=_OF_A_RUN),
    Route("GET", "/v1/objects", objects.list_objects, answer=object_forms.ObjectsForm,
          problems=_POOL),
    Route("POST", "/v1/objects", objects.add_object, body=object_forms.NewObjectForm,
          answer=object_forms.ObjectForm, statuses=_CREATED,
          problems=(ErrorKind.TOO_MANY, *_POOL)),
    Route("GET", "/v1/objects/watch", watch_objects.watch_objects, answer=str,
          media_types=_EVENTS, problems=_POOL),
    Route("GET", "/v1/objects/types", objects.list_types, answer=object_forms.TypesForm,
          problems=(ErrorKind.NOT_FOUND,)),
    Route("POST", "/v1/objects/types", objects.declare_type, body=object_forms.NewTypeForm,
          answer=object_forms.TypeForm, statuses=_CREATED, problems=_POOL),
    Route("DELETE", "/v1/objects/types/{name}", objects.undeclare_type, answer=None,
          statuses=(204,), problems=_POOL),
    Route("GET", "/v1/objects/{hash}", objects.show_object, answer=object_forms.ObjectForm,
          problems=_POOL),
    Route("PATCH", "/v1/objects/{hash}", objects.change_object, body=object_forms.ObjectChangeForm,
          answer=object_forms.ObjectForm,
          problems=_POOL),
    Route("DELETE", "/v1/objects/{hash}", objects.remove_object, answer=None, statuses=(204,),
          problems=_POOL),
)
# fmt: on

#: Made once: a node serves the API in two places.
ROUTER = Router(ROUTES)
