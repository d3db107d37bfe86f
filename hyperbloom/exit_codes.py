"""The exit codes of `hyperbloom` and of a node that cannot start: the one list of them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["EXIT_MEANINGS", "ExitCode"]


class ExitCode(IntEnum):
    """What a program that calls `hyperbloom` may rely on; numbers are never given a new meaning."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    UNREACHABLE = 4
    REFUSED = 5
    TIMEOUT = 6
    STORE = 7
    NOT_FOUND = 8
    BUSY = 9
    UNEXPECTED = 70
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


EXIT_MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done; for `has`: no value is missing; for `verify`: nothing is wrong",
    ExitCode.FAILED: "not done, for what the message says; or the answer is no (`has`, `verify`)",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.CONFIG: "the configuration, the key file or an invitation cannot be used",
    ExitCode.UNREACHABLE: "no node runs on this folder; or it, Spark or the DHT does not answer",
    ExitCode.REFUSED: "refused: this node is not trusted on the feed, or a link has expired",
    ExitCode.TIMEOUT: "what was asked for did not come within --timeout (or, left out, 30 s)",
    ExitCode.STORE: "the store cannot be used: disk full, damaged, locked by another process",
    ExitCode.NOT_FOUND: "no such feed, object, output, input, hook, or (for `wait-synced`) peer",
    ExitCode.BUSY: "an address, the control socket or an export is in use by another process",
    ExitCode.UNEXPECTED: "an unexpected error; the message says where the details are",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.OUTPUT_CLOSED: "who read the output has gone (as with `| head`)",
}
