"""Endpoints by which a browser comes to a session of its own: see `access`."""

from __future__ import annotations

from hyperbloom.api.http.access import Access
from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.limits import CODE_SECONDS, SESSION_SECONDS
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas import SessionForm, SessionOfferForm, member, only

__all__ = ["claim_session", "offer_session"]


def _access(call: Call) -> Access:
    access = call.context.access
    if access is None:
        raise Problem(
            ProblemKind.CONFLICT,
            "the node has no TCP port for browsers; set listen under [api] in its configuration",
        )
    return access


def offer_session(call: Call) -> Answer:
    """A link to the status page by which one browser comes to a session."""
    access = _access(call)
    only(call.body(), ())
    code = access.issue_code()
    call.status = 201
    offer: SessionOfferForm = {"url": f"{access.url}#{code}", "code": code, "seconds": CODE_SECONDS}
    return offer


def claim_session(call: Call) -> Answer:
    """A session for a code: the code does not hold any more afterwards."""
    access, body = _access(call), call.body()
    only(body, ("code",))
    call.status = 201
    session: SessionForm = {
        "token": access.claim(member(body, "code", str)),
        "seconds": SESSION_SECONDS,
    }
    return session
