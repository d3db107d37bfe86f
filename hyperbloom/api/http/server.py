"""The API as a resource of twisted.web: a request is routed, answered, and what fails is told.

A request is read whole (bounded), routed, answered in JSON. What an endpoint raises becomes a
problem (RFC 9457); what nobody foresaw is logged here and told to the client without its details.
What a request may is decided by its headers (`access`) before its body is kept; over the control
socket it may everything. What a connection may is in `channel`.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests)
from __future__ import annotations

import inspect
import json
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from hyperbloom.api.http.access import Access, Rights
from hyperbloom.api.http.channel import ApiRequest
from hyperbloom.api.http.request import STREAMED, Answer, Call, Context, Result
from hyperbloom.api.http.router import MethodNotAllowed, Route, Router
from hyperbloom.api.problems import PROBLEM_MEDIA_TYPE, Problem, problem_of
from hyperbloom.errors import ErrorKind

__all__ = ["ApiResource"]

log = Logger()

#: What a browser is to know about every answer: it is what it says it is, is not to be kept, and
#: is for our own page.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)


class ApiResource(Resource):
    """All of the API: a leaf, because the table of routes knows the paths below it."""

    isLeaf = True

    def __init__(self, context: Context, router: Router) -> None:
        super().__init__()
        self._context = context
        self._router = router

    def render(self, request: Request) -> int:
        """Twisted's entry: answers now or later, always by itself."""
        call = Call(request, [], self._context)
        try:
            answer = self._answer(cast("ApiRequest", request), call)
        except Exception:
            self._refuse(Failure(), call)
        else:
            if isinstance(answer, Deferred):
                answer.addCallback(self._send, call).addErrback(self._refuse, call)
            else:
                self._send(answer, call)
        return NOT_DONE_YET

    def _answer(self, request: ApiRequest, call: Call) -> Result | Deferred[Any]:
        if request.refusal is not None:
            raise request.refusal
        path, method = request.path.decode("latin-1"), request.method.decode("latin-1")
        route, call.arguments = self._router.find(method, path)
        _check_rights(request, route)
        if request.received > request.most:
            raise Problem(
                ErrorKind.TOO_LARGE, f"a body has at most {request.most:,} bytes; send parts"
            )
        answer: Answer = route.endpoint(call)
        if inspect.iscoroutine(answer):
            return Deferred.fromCoroutine(answer)
        return cast("Result | Deferred[Any]", answer)

    def _send(self, result: Result, call: Call) -> None:
        if result is STREAMED:
            return
        if result is None:
            _respond(call, 204, b"", None)
            return
        body = result if isinstance(result, bytes) else _dump(result)
        _respond(call, call.status, body, call.media_type)

    def _refuse(self, failure: Failure, call: Call) -> None:
        problem = problem_of(cast("BaseException", failure.value))
        if problem is None:
            log.failure("A request to {path} failed", failure, path=call.request.path)
            problem = Problem(
                ErrorKind.UNEXPECTED, "the node met an unexpected error; its log has the details"
            )
        if isinstance(problem, MethodNotAllowed):
            call.request.responseHeaders.setRawHeaders(b"allow", [", ".join(problem.allowed)])
        if problem.kind is ErrorKind.UNAUTHORIZED:  # RFC 9110, 11.6.1
            call.request.responseHeaders.setRawHeaders(b"www-authenticate", [b"Bearer"])
        _respond(call, problem.kind.status, _dump(problem.as_json()), PROBLEM_MEDIA_TYPE.encode())


def _check_rights(request: ApiRequest, route: Route) -> None:
    if request.channel.site.access is None or route.is_page:
        return
    Access.check_page(request.requestHeaders)
    if request.rights >= route.needs:
        return
    if request.rights is Rights.NONE:
        raise Problem(
            ErrorKind.UNAUTHORIZED, "send the node's token: `Authorization: Bearer TOKEN`"
        )
    raise Problem(
        ErrorKind.FORBIDDEN,
        "the token for metrics may read /metrics, and nothing else"
        if request.rights is Rights.METRICS
        else "a browser's session may read, and nothing else",
    )


def _dump(result: object) -> bytes:
    return json.dumps(result, separators=(",", ":"), allow_nan=False).encode()


def _respond(call: Call, status: int, body: bytes, media_type: bytes | None) -> None:
    request = cast("ApiRequest", call.request)
    if request.gone:
        return
    request.setResponseCode(status)
    headers = request.responseHeaders
    for name, value in _HEADERS:
        if not headers.hasHeader(name):
            headers.setRawHeaders(name, [value])
    if media_type is not None:
        headers.setRawHeaders(b"content-type", [media_type])
        headers.setRawHeaders(b"content-length", [b"%d" % len(body)])
    if body:
        request.write(body)
    request.finish()
