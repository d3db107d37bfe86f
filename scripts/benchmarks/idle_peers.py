"""Many secure connections from one process: PORT COUNT LINK FEED; says `secure` when all are."""

from __future__ import annotations

import os
import socket
import sys
import time

from hyperbloom.keys import Identity
from hyperbloom.trust import verify_chain
from hyperbloom.wire import Credentials, Session
from hyperbloom.wire.events import OpenReceived, Waiting
from hyperbloom.wire.extensions.noise import EPHEMERAL_BYTES

MEMBER = Identity(b"m" * 32)


def connect(port: int, credentials: Credentials) -> tuple[socket.socket, Session]:
    """One connection, secure."""
    connection = socket.create_connection(("127.0.0.1", port))
    session = Session(dialled=True)
    connection.sendall(session.send_open(credentials, nonce=os.urandom(24), speaks_noise=True))
    while session.remote is None or not session.is_protected:
        if session.noise_is_due:
            connection.sendall(session.send_noise(ephemeral=os.urandom(EPHEMERAL_BYTES)))
        event = session.next_event(now=time.time())
        if isinstance(event, OpenReceived):
            connection.sendall(session.send_handshake(peer_id=os.urandom(32)))
        elif isinstance(event, Waiting):
            data = connection.recv(65_536)
            if not data:
                raise ConnectionError("the node closed the connection")
            session.receive_data(data)
    return connection, session


def main() -> None:
    """Connect, say so, and wait until standard input ends."""
    port, count = int(sys.argv[1]), int(sys.argv[2])
    feed = bytes.fromhex(sys.argv[4])
    chain = verify_chain(feed, [bytes.fromhex(sys.argv[3])], now=time.time())
    credentials = Credentials(feed_key=feed, identity=MEMBER, chain=chain)
    connections = [connect(port, credentials) for _ in range(count)]
    sys.stdout.write("secure\n")
    sys.stdout.flush()
    sys.stdin.read()
    del connections


if __name__ == "__main__":
    main()
