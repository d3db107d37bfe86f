"""Memory goes back to the system when a crowd has gone, once, and not while it comes and goes."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest
from twisted.internet.defer import execute, fail
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from hyperbloom.process.free_memory import LOOK_SECONDS, MANY, MemoryRelease, map_large_blocks, trim


class Bench:
    def __init__(self, in_thread=execute):
        self.clock = Clock()
        self.ended = 0
        self.done = []
        self.looks = 0
        self.release = MemoryRelease(
            lambda: self.ended,
            self.clock,
            in_thread,
            forget=self.forget,
            collect=lambda: self.done.append("collected"),
            trim=lambda: self.done.append("trimmed"),
        )
        self.release.startService()

    def forget(self):
        self.looks += 1

    def look(self):
        self.clock.advance(LOOK_SECONDS)


def test_memory_is_given_back_once_when_a_crowd_has_gone():
    bench = Bench()
    bench.look()
    bench.ended = MANY
    bench.look()
    assert bench.done == [], "others may be about to go"
    bench.look()
    assert bench.done == ["collected", "trimmed"]
    assert bench.looks == 3
    bench.look()
    bench.ended += MANY - 1
    bench.look()
    bench.look()
    assert len(bench.done) == 2
    bench.ended += 1
    bench.look()
    bench.look()
    assert len(bench.done) == 4


def test_what_is_kept_of_those_who_have_gone_is_looked_through_though_they_are_few():
    bench = Bench()
    bench.ended = 1
    bench.look()
    bench.look()
    assert bench.looks == 2
    assert bench.done == []


def test_nothing_is_done_for_few_connections():
    bench = Bench()
    bench.ended = MANY - 1
    for _ in range(3):
        bench.look()
    assert bench.done == []


def test_nothing_is_done_while_connections_end():
    bench = Bench()
    for _ in range(5):
        bench.ended += MANY
        bench.look()
    assert bench.done == []


def test_a_node_that_has_stopped_looks_no_more():
    bench = Bench()
    bench.release.stopService()
    assert not bench.clock.getDelayedCalls()


def test_a_failure_is_logged_and_the_looks_go_on():
    bench = Bench(in_thread=lambda call: fail(OSError("no")))
    bench.ended = MANY
    with capturedLogs() as told:
        for _ in range(3):
            bench.look()
    assert [one["log_format"] for one in told] == ["Memory was not given back"]
    assert bench.done == ["collected"]
    assert bench.clock.getDelayedCalls()


@pytest.mark.parametrize("library", [object(), OSError("none")], ids=["no malloc_trim", "none"])
def test_a_system_without_it_is_left_alone(monkeypatch, library):
    def load(name):
        if isinstance(library, OSError):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    trim()
    map_large_blocks()


def test_the_library_is_told_to_give_all_back(monkeypatch):
    told = []

    class Library:
        @staticmethod
        def malloc_trim(pad):
            told.append(pad.value)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    trim()
    assert told == [0]


#: Prints by how much more is mapped with a block that is large, after a larger one was freed.
_MAPPED = """
import ctypes, sys
from hyperbloom.process.free_memory import LARGE_BYTES, map_large_blocks

class Usage(ctypes.Structure):
    _fields_ = [(str(number), ctypes.c_size_t) for number in range(10)]

usage = ctypes.CDLL(None).mallinfo2
usage.restype = Usage
if sys.argv[1] == "apart":
    map_large_blocks()
block = bytearray(16 * LARGE_BYTES)
del block
before = getattr(usage(), "4")
block = bytearray(2 * LARGE_BYTES)
print(getattr(usage(), "4") - before >= 2 * LARGE_BYTES)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or later")
@pytest.mark.parametrize(("how", "is_mapped"), [("alone", "False"), ("apart", "True")])
def test_large_blocks_are_mapped_apart_after_larger_ones_were_freed(how, is_mapped):
    command = [sys.executable, "-c", _MAPPED, how]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == is_mapped
