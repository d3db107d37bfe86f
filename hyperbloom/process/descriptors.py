"""Room for file descriptors: a connection costs one, and strangers may open many.

Most systems give a process 1,024 of them at first and let it ask for more. A node that has none
left can neither let a member in nor dial nor open a file of its store, so it asks for as many as
its limits on connections may come to.
"""

from __future__ import annotations

import resource

__all__ = ["OTHER_DESCRIPTORS", "make_room"]

#: Files of the store, listeners, the log, callers of the API, and what a library opens.
OTHER_DESCRIPTORS = 512


def make_room(connections: int) -> int | None:
    """Have this process open that many connections beside all else.

    None when it may; else how many descriptors the system gives it at most.
    """
    wanted = connections + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    enough = hard == resource.RLIM_INFINITY or hard >= wanted
    given = wanted if enough else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given, hard))
    except (OSError, ValueError):
        return soft
    return None if enough else given
