"""The status page: some files of the package, and a browser's way to a session of its own.

The page holds nothing of the node's; all it shows it asks for with its session (`access`). Nothing
in it comes from elsewhere, and the policy sent with it lets it run, load and reach nothing else.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from hyperbloom.api.http.access import Access
from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.limits import CODE_SECONDS, SESSION_SECONDS
from hyperbloom.api.problems import Problem
from hyperbloom.api.schemas.answers import SessionForm, SessionOfferForm
from hyperbloom.api.schemas.bodies import CodeForm, NothingForm
from hyperbloom.errors import ErrorKind

__all__ = [
    "CONTENT_SECURITY_POLICY",
    "SCRIPTS",
    "claim_session",
    "offer_session",
    "show_page",
    "show_script",
    "show_style",
]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)

#: The page's program: the browser asks for the first, which names the others.
SCRIPTS = (
    "status.js",
    "elements.js",
    "feed_state.js",
    "history.js",
    "node_link.js",
    "trust_graph.js",
    "words.js",
)


@cache
def _file(name: str) -> bytes:
    return files("hyperbloom.api").joinpath("static", name).read_bytes()


def _show(call: Call, name: str, media_type: bytes) -> Answer:
    call.media_type = media_type + b"; charset=utf-8"
    headers = call.request.responseHeaders
    headers.setRawHeaders(b"content-security-policy", [CONTENT_SECURITY_POLICY.encode()])
    headers.setRawHeaders(b"x-frame-options", [b"DENY"])
    return _file(name)


def show_page(call: Call) -> Answer:
    """The status page."""
    return _show(call, "status.html", b"text/html")


def show_style(call: Call) -> Answer:
    """Its style."""
    return _show(call, "status.css", b"text/css")


def show_script(call: Call) -> Answer:
    """A file of its program."""
    (name,) = call.arguments
    if name not in SCRIPTS:
        raise Problem(ErrorKind.NOT_FOUND, "the page has no such file")
    return _show(call, name, b"text/javascript")


def _access(call: Call) -> Access:
    access = call.context.access
    if access is None:
        raise Problem(
            ErrorKind.CONFLICT,
            "the node has no TCP port for browsers; set listen under [api] in its configuration",
        )
    return access


def offer_session(call: Call) -> Answer:
    """A link to the status page for one browser: it carries the code of a session."""
    access = _access(call)
    call.body(NothingForm)
    code = access.issue_code()
    call.status = 201
    offer: SessionOfferForm = {"url": f"{access.url}#{code}", "code": code, "seconds": CODE_SECONDS}
    return offer


def claim_session(call: Call) -> Answer:
    """A session in exchange for a code, which is good once."""
    access, form = _access(call), call.body(CodeForm)
    call.status = 201
    session: SessionForm = {
        "token": access.claim(form["code"]),
        "seconds": SESSION_SECONDS,
    }
    return session
