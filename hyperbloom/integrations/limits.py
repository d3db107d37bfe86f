"""How much outputs, inputs and hooks may take of the node, however they are set."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ENDING_SECONDS",
    "FIRST_RETRY_SECONDS",
    "GATHER_SECONDS",
    "HOOK_BATCH_BYTES",
    "INPUT_BATCH_BYTES",
    "INPUT_BATCH_VALUES",
    "LAST_RETRY_SECONDS",
    "LEFT_FEED_SECONDS",
    "MAX_COMMANDS",
    "MAX_FILE_WORK",
    "MAX_INTEGRATIONS",
    "MAX_RETRY_AFTER_SECONDS",
    "OUTPUT_TAIL_BYTES",
    "POSTING_SECONDS",
    "RENDERING_SECONDS",
    "RESTS",
    "RETRY_AFTER_CHARACTERS",
    "TAKE_BACK_STEP",
    "WATCH_SECONDS",
]

MAX_INTEGRATIONS: Final = 100
"""Outputs, inputs and hooks of a node together: each has a timer and a place on the status page."""

MAX_COMMANDS: Final = 4
"""Processes at a time, those of the node's own among them; the others wait. Each has a thread."""

MAX_FILE_WORK: Final = 2
"""Files of outputs that are written or looked at at a time, beside those: a program that takes its
time keeps no file from being as its feed is. Each takes a core while it is written."""

OUTPUT_TAIL_BYTES: Final = 2_000
"""The last bytes that a process wrote, which are kept to say why it failed."""

ENDING_SECONDS: Final = 5.0
"""Time that a process has to end when it is told to, before it is killed."""

FIRST_RETRY_SECONDS: Final = 5.0
"""Time until what failed is tried again; it doubles with each failure that follows."""

LAST_RETRY_SECONDS: Final = 900.0
"""Where that doubling ends: what was mended is noticed within a quarter of an hour."""

LEFT_FEED_SECONDS: Final = 5.0
"""How often a feed is looked for that is not there, because it is not joined yet or was left."""

HOOK_BATCH_BYTES: Final = 1 << 20
"""Bytes of values that a hook is told of at a time, or one value. As text with all that stands
beside them, 10,000 values of that many bytes are 4 MB, which wait for their program's turn."""

POSTING_SECONDS: Final = 30.0
"""Time for the process that sends a webhook, beside its request: to begin on a busy machine."""

MAX_RETRY_AFTER_SECONDS: Final = 3_600.0
"""As long as a server may keep a webhook waiting by `Retry-After`, however much it asks for."""

RETRY_AFTER_CHARACTERS: Final = 100
"""What is read of that header: a date of HTTP has 29 characters, a server may send 60,000."""

WATCH_SECONDS: Final = 2.0
"""How often the file of an input is looked at. It is read when it was the same at two such looks,
so that one that is being written is let finish."""

INPUT_BATCH_VALUES: Final = 4_096
"""Values that an input puts at once, or looks up at once: some 10 ms of a thread."""

INPUT_BATCH_BYTES: Final = 1_048_576
"""The same cap in bytes of the values; one value may go beyond it."""

TAKE_BACK_STEP: Final = 1_024
"""Values taken back in one transaction, and signatures made for them in one go, 0.03 ms each."""

GATHER_SECONDS: Final = 0.05
"""Time from a change of a feed to the writing of a file: what is put together comes together."""

RESTS: Final = 2.0
"""How many times as long as the writing of a file took the next one waits: a feed that changes all
the time costs a third of a core for each file of it."""

RENDERING_SECONDS: Final = 900.0
"""Time that the writing of a file may take: that of hundreds of millions of values on a disk that
takes 50 MB a second."""
