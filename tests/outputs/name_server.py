"""Questions to a resolver, and the name server that it asks: on 127.0.0.1 alone."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

NXDOMAIN = 3


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return labels + b"\0" + struct.pack(">HH", 1, 1)


@contextlib.contextmanager
def name_server() -> Iterator[int]:
    """The port of a name server that has an address for every name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        ending = threading.Event()
        server.settimeout(0.1)

        def serve() -> None:
            while not ending.is_set():
                with contextlib.suppress(TimeoutError):
                    query, peer = server.recvfrom(4096)
                    end = query.index(b"\0", 12) + 5
                    head = query[:2] + struct.pack(">HHHHH", 0x8580, 1, 1, 0, 0)
                    answer = struct.pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, 99)
                    server.sendto(head + query[12:end] + answer, peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        ending.set()
        thread.join()


def asked(port: int, name: str) -> bool | None:
    """Whether a resolver has an address for a name; None where it does not answer yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", port))
        try:
            client.send(struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question(name))
            answer = client.recv(4096)
        except OSError:
            return None
    code, answers = answer[3] & 15, struct.unpack(">H", answer[6:8])[0]
    assert (code, answers > 0) in ((0, True), (NXDOMAIN, False)), (name, code, answers)
    return bool(answers)
