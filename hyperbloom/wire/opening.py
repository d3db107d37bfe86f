"""How a session becomes secure: what both sides' Opens, Handshakes and NoiseMessages say.

The session knows when each may come, reads and sends; here is what they are made of and what is
judged of them. There is none of this any more once the session is secure.

Where this side speaks the extension `noise`, it marks its nonce and announces it; what each side
has sent until its Handshake is hashed, and the Noise handshake (extensions/noise.py) is bound to
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from hyperbloom.trust import Chain
from hyperbloom.wire.credentials import Credentials
from hyperbloom.wire.errors import (
    AnnouncementStripped,
    LocalProtocolError,
    PeerTurnedAway,
    RemoteProtocolError,
)
from hyperbloom.wire.events import RemotePeer
from hyperbloom.wire.extensions.noise import (
    NOISE,
    NoiseHandshake,
    NoiseMessage,
    is_marked,
    marked,
    prologue,
    shared_secret,
)
from hyperbloom.wire.framing import encode_frame, encode_open
from hyperbloom.wire.messages import Handshake, Open
from hyperbloom.wire.records import RecordReader, RecordWriter
from hyperbloom.wire.stream_cipher import XSalsa20Stream
from hyperbloom.wire.verification import named_chain, verify_handshake

__all__ = ["Opening"]


class Opening:
    """What one side has said and heard until the connection is secure.

    `dialled`: whether we did. Of the chain that a Handshake names, which nothing has verified yet,
    `refuses` says why it is turned away, or None, and `waits` whether it is looked at later.
    `leeway` seconds are granted past the expiry of the peer's links.
    """

    __slots__ = (
        "_announced",
        "_leeway",
        "_noise",
        "_nonce",
        "_refuses",
        "_remote",
        "_transcript",
        "_waits",
        "dialled",
    )

    def __init__(
        self,
        *,
        dialled: bool,
        leeway: float,
        refuses: Callable[[Chain], str | None],
        waits: Callable[[Chain], bool] = lambda chain: False,
    ) -> None:
        self.dialled = dialled
        self._leeway, self._refuses, self._waits = leeway, refuses, waits
        self._nonce = b""
        self._remote: Open | None = None
        self._announced: tuple[str, ...] = ()
        self._transcript = hashlib.blake2b()
        self._noise: NoiseHandshake | None = None

    # Open

    def open(self, credentials: Credentials, *, nonce: bytes, speaks_noise: bool) -> bytes:
        """Our Open, whole; LocalProtocolError where it does not suit the peer's."""
        speaks_noise = speaks_noise and credentials.dialect.carries_noise
        if speaks_noise:
            nonce = marked(nonce, credentials.feed_key)
        sent = encode_open(Open(feed=credentials.discovery_key, nonce=nonce).encode())
        opened = self._remote
        if opened is not None and opened.feed != credentials.discovery_key:
            raise LocalProtocolError("these credentials are of another feed than the peer opened")
        if opened is not None and opened.nonce == nonce:
            raise LocalProtocolError("the nonce is not fresh: the peer sent the same")
        self._nonce = nonce
        self._announced = (NOISE,) if speaks_noise else ()
        self._transcript.update(sent)
        return sent

    def take_open(self, opened: Open, credentials: Credentials | None) -> None:
        """The peer's. RemoteProtocolError where it does not suit ours, if that was sent."""
        if credentials is not None:
            if opened.feed != credentials.discovery_key:
                raise RemoteProtocolError("the peer opened another feed")
            # Two equal nonces are two equal keystreams, and a mirror of all we send could pass
            # our own signed messages off as a peer's.
            if opened.nonce == self._nonce:
                raise RemoteProtocolError("the peer sent our own nonce back")
        self._remote = opened

    def outgoing(self, credentials: Credentials) -> XSalsa20Stream:
        """The keystream of what we send behind our Open."""
        return XSalsa20Stream(credentials.feed_key, self._nonce)

    def incoming(self, credentials: Credentials | None) -> XSalsa20Stream | None:
        """That of what the peer sends behind its Open; None until both are there."""
        if credentials is None or self._remote is None:
            return None
        return XSalsa20Stream(credentials.feed_key, self._remote.nonce)

    # Handshake

    def handshake(
        self, credentials: Credentials, *, peer_id: bytes, extensions: Sequence[str]
    ) -> Handshake:
        """Ours, once both Opens are there."""
        signed = credentials.dialect.handshake_input(self._nonce, self._opened().nonce)
        handshake = Handshake(
            id=peer_id,
            extensions=(*extensions, *self._announced),
            signature=credentials.identity.sign(signed),
            chain=credentials.chain.to_wire(),
        )
        self._transcript.update(encode_frame(handshake.message_id, handshake.encode()))
        return handshake

    def has_to_wait(self, handshake: Handshake, credentials: Credentials) -> bool:
        """Whether the peer's Handshake is looked at later: whom it names has to wait."""
        chain = named_chain(handshake, credentials)
        return chain is not None and self._waits(chain)

    def take_handshake(
        self, handshake: Handshake, credentials: Credentials, *, seen: bytes, now: float
    ) -> RemotePeer:
        """The peer that its Handshake proves. `seen`: the hash (64 bytes) of all it has sent.

        PeerTurnedAway, before anything is verified; UntrustedPeer; RemoteProtocolError where it
        says one thing of `noise` by its nonce and another by its announcement, AnnouncementStripped
        where the announcement is missing.
        """
        chain = named_chain(handshake, credentials)
        why = None if chain is None else self._refuses(chain)
        if why is not None:
            raise PeerTurnedAway(why)
        opened = self._opened()
        remote = verify_handshake(
            handshake,
            credentials,
            signed=credentials.dialect.handshake_input(opened.nonce, self._nonce),
            now=now,
            leeway=self._leeway,
        )
        if _speaks_noise(handshake, opened, credentials) and self._announced:
            self._begin_noise(credentials, remote.key, seen)
        return remote

    # Noise

    @property
    def has_noise(self) -> bool:
        """Whether both sides speak it: NoiseMessages are exchanged."""
        return self._noise is not None

    def _begin_noise(self, credentials: Credentials, peer_key: bytes, seen: bytes) -> None:
        sent = self._transcript.digest()
        self._noise = NoiseHandshake(
            dialled=self.dialled,
            identity=credentials.identity,
            peer_key=peer_key,
            psk=shared_secret(credentials.feed_key),
            prologue=prologue(sent, seen) if self.dialled else prologue(seen, sent),
        )

    def noise_message(self, *, ephemeral: bytes) -> NoiseMessage:
        """Ours. `ephemeral` is 32 fresh random bytes."""
        return self._noise_handshake().write(ephemeral=ephemeral)

    def take_noise(self, message: NoiseMessage) -> None:
        """The peer's; RemoteProtocolError where it does not hold."""
        self._noise_handshake().read(message)

    def ciphers(self) -> tuple[RecordWriter, RecordReader]:
        """Both NoiseMessages have gone: for what we send, and for what comes."""
        return self._noise_handshake().ciphers()

    # The session's table sees to it that these are there; said again for who reads the types.

    def _opened(self) -> Open:
        if self._remote is None:
            raise LocalProtocolError("both sides' Open come before the Handshake")
        return self._remote

    def _noise_handshake(self) -> NoiseHandshake:
        if self._noise is None:
            raise LocalProtocolError("both sides' Handshakes come before NoiseMessages")
        return self._noise


def _speaks_noise(handshake: Handshake, opened: Open, credentials: Credentials) -> bool:
    """Whether the peer does; RemoteProtocolError where its nonce and its Handshake differ."""
    if not credentials.dialect.carries_noise:
        return False
    announces = NOISE in handshake.extensions
    if announces == is_marked(opened.nonce, credentials.feed_key):
        return announces
    if announces:
        raise RemoteProtocolError(f"{NOISE} is announced, and the nonce does not say so")
    raise AnnouncementStripped(
        f"the peer's nonce says that it speaks {NOISE}, and its Handshake does not: somebody on "
        "the path has struck it out"
    )
