"""Sends one POST, in a process of its own: `python -P -m hyperbloom.integrations.posting`.

Standard input has one line of JSON, with `url`, `headers` and `seconds`, and behind it the body.
Nothing of that stands in arguments or in the environment, where others may see it. Standard output
gets one object: `status` and `retry_after` (a text, or null), or `problem`, one sentence.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hyperbloom.https import RequestFailed, request
from hyperbloom.integrations.limits import RETRY_AFTER_CHARACTERS

__all__ = ["main"]


def main() -> None:
    """Read the request, send it, and write how it went."""
    first, _, body = sys.stdin.buffer.read().partition(b"\n")
    json.dump(_sent(json.loads(first), body), sys.stdout)


def _sent(form: dict[str, Any], body: bytes) -> dict[str, Any]:
    try:
        answer = request(
            "POST",
            form["url"],
            seconds=form["seconds"],
            headers=form["headers"],
            body=body,
            http_on_loopback=True,
        )
    except RequestFailed as problem:
        return {"problem": str(problem)}
    after = answer.headers.get("retry-after")
    return {
        "status": answer.status,
        "retry_after": None if after is None else after[:RETRY_AFTER_CHARACTERS],
    }


if __name__ == "__main__":
    main()
