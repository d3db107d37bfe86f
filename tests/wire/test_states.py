"""Every (state, input) pair in every dialect: what the table says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from drawn_states import diagram_in
from wire_peers import (
    LOCAL_EPHEMERAL,
    LOCAL_NONCE,
    NOISE_STATES,
    NOW,
    OWNER,
    PEER_ID,
    REMOTE_EPHEMERAL,
    RawPeer,
    credentials_of,
    drive,
    each_dialect,
    handshake_body,
    link_of,
    open_bytes,
)

from hyperbloom.trust import TrustLink
from hyperbloom.wire import (
    DIALECTS,
    NEED_DATA,
    PAUSED,
    Credentials,
    Dialect,
    Digest,
    DigestRequest,
    FilterOptions,
    Link,
    LocalProtocolError,
    Range,
    RemoteProtocolError,
    Request,
    Session,
    Sketch,
    SketchRequest,
    Sync,
    ValuesWanted,
)
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.events import ConnectionEnded
from hyperbloom.wire.extension_messages import EXTENSION_MESSAGES
from hyperbloom.wire.extensions.broadcast_tree import LinkKind, ValuesPull, ValuesTold
from hyperbloom.wire.extensions.noise import NoiseMessage
from hyperbloom.wire.extensions.renew_links import RenewedChain
from hyperbloom.wire.states import (
    PAUSED_STATES,
    TRANSITIONS,
    Input,
    State,
)

SYNC = Sync(filter=b"\x00", size=8, n=1, seed=0)
ASKED = DigestRequest(number=1, ranges=(Range(start=b""),))
SKETCH_ASKED = SketchRequest(number=1, salt=b"", first=0, count=1, ranges=(Range(start=b""),))
SKETCH = Sketch.nothing(1, 0)
WANTED = ValuesWanted(number=1, ids=b"")
IDS_TOLD = ValuesTold(ids=bytes(16))
PULL = ValuesPull(link=LinkKind.TELL, ids=b"")
RENEWED = RenewedChain(links=(bytes(137),))
TOLD = Digest(
    number=1,
    count=0,
    digest=bytes(32),
    settled_count=0,
    settled_digest=bytes(32),
    ranges=(Range(start=b""),),
)


def remote(dialect: Dialect) -> Credentials:
    """A peer that a Link is due for."""
    return credentials_of(2, 3, dialect=dialect)


def link(dialect: Dialect) -> TrustLink:
    return link_of(OWNER, 3, dialect=dialect)


COMMANDS: dict[Input, Callable[[Session, Dialect], object]] = {
    Input.SEND_OPEN: lambda session, dialect: session.send_open(
        credentials_of(dialect=dialect), nonce=LOCAL_NONCE
    ),
    Input.SEND_HANDSHAKE: lambda session, _: session.send_handshake(peer_id=PEER_ID),
    Input.SEND_NOISE: lambda session, _: session.send_noise(ephemeral=LOCAL_EPHEMERAL),
    Input.SEND_SYNC: lambda session, _: session.send_sync(SYNC),
    Input.SEND_FILTER_OPTIONS: lambda session, _: session.send_filter_options(
        FilterOptions(size=8, n=1)
    ),
    Input.SEND_DATA: lambda session, _: session.send_data([b"v"]),
    Input.SEND_REQUEST: lambda session, _: session.send_request(Request(start=b"")),
    Input.SEND_LINK: lambda session, dialect: session.send_link(link(dialect)),
    Input.SEND_DIGEST_REQUEST: lambda session, _: session.send_extension(ASKED),
    Input.SEND_DIGEST: lambda session, _: session.send_extension(TOLD),
    Input.SEND_SKETCH_REQUEST: lambda session, _: session.send_extension(SKETCH_ASKED),
    Input.SEND_SKETCH: lambda session, _: session.send_extension(SKETCH),
    Input.SEND_VALUES_WANTED: lambda session, _: session.send_extension(WANTED),
    Input.SEND_VALUES_TOLD: lambda session, _: session.send_extension(IDS_TOLD),
    Input.SEND_VALUES_PULL: lambda session, _: session.send_extension(PULL),
    Input.SEND_RENEWED_CHAIN: lambda session, _: session.send_extension(RENEWED),
    Input.CLOSE: lambda session, _: session.close(),
}


def send_noise(peer: RawPeer) -> None:
    """The peer's NoiseMessage; bytes that mean nothing where it is not its turn."""
    body = bytes(48)
    if peer.noise is not None and not peer.session.noise_is_due:
        body = peer.noise.write(ephemeral=REMOTE_EPHEMERAL).body
    peer.send(NoiseMessage.message_id, body)


ARRIVALS: dict[Input, Callable[[RawPeer, Dialect], None]] = {
    Input.RECEIVE_OPEN: lambda peer, dialect: peer.session.receive_data(
        open_bytes(dialect=dialect)
    ),
    Input.RECEIVE_HANDSHAKE: lambda peer, dialect: peer.send(0, handshake_body(remote(dialect))),
    Input.RECEIVE_NOISE: lambda peer, _: send_noise(peer),
    Input.RECEIVE_SYNC: lambda peer, _: peer.send(1, SYNC.encode()),
    Input.RECEIVE_FILTER_OPTIONS: lambda peer, _: peer.send(2, FilterOptions(size=8, n=1).encode()),
    Input.RECEIVE_DATA: lambda peer, dialect: peer.send(
        3, sign_data(remote(dialect), [b"v"]).encode()
    ),
    Input.RECEIVE_REQUEST: lambda peer, _: peer.send(4, Request(start=b"").encode()),
    Input.RECEIVE_LINK: lambda peer, dialect: peer.send(
        5, Link(link=link(dialect).to_bytes()).encode()
    ),
    Input.RECEIVE_DIGEST_REQUEST: lambda peer, _: peer.send(4365, ASKED.encode()),
    Input.RECEIVE_DIGEST: lambda peer, _: peer.send(4366, TOLD.encode()),
    Input.RECEIVE_SKETCH_REQUEST: lambda peer, _: peer.send(4367, SKETCH_ASKED.encode()),
    Input.RECEIVE_SKETCH: lambda peer, _: peer.send(4368, SKETCH.encode()),
    Input.RECEIVE_VALUES_WANTED: lambda peer, _: peer.send(4369, WANTED.encode()),
    Input.RECEIVE_VALUES_TOLD: lambda peer, _: peer.send(4370, IDS_TOLD.encode()),
    Input.RECEIVE_VALUES_PULL: lambda peer, _: peer.send(4371, PULL.encode()),
    Input.RECEIVE_RENEWED_CHAIN: lambda peer, _: peer.send(4373, RENEWED.encode()),
    Input.RECEIVE_UNKNOWN: lambda peer, _: peer.send(99, b"whatever"),
    Input.RECEIVE_END: lambda peer, _: peer.session.end_data(),
}

#: States in which nothing is read any more.
DEAF = (State.PEER_ENDED, State.CLOSED)
LIVE = [state for state in State if state not in DEAF]
OF_EXTENSIONS = {kind.received for kind in EXTENSION_MESSAGES.values()}

#: A Handshake by which a peer says that it speaks Noise: `drive` shows where these lead.
NOISE_HANDSHAKES = {Input.RECEIVE_HANDSHAKE_THEN_SEND, Input.RECEIVE_HANDSHAKE_THEN_AWAIT}


def carries(dialect: Dialect, state: State) -> bool:
    """Whether there is such a state in the dialect."""
    return dialect.carries_noise or state not in NOISE_STATES


def states_of(states: Iterable[State]) -> pytest.MarkDecorator:
    """Each of these states, in each dialect that has it."""
    cases = [(state, it) for state in states for it in DIALECTS.values() if carries(it, state)]
    names = [f"{state.name}-{dialect.name}" for state, dialect in cases]
    return pytest.mark.parametrize(("state", "dialect"), cases, ids=names)


def test_every_input_is_driven() -> None:
    assert set(COMMANDS) | set(ARRIVALS) == set(Input) - NOISE_HANDSHAKES


@states_of(State)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda it: it.name)
def test_every_command_in_every_state(state: State, command: Input, dialect: Dialect) -> None:
    session = drive(state, remote=remote(dialect), dialect=dialect).session
    target = TRANSITIONS.get((state, command))
    if target is not None and command is Input.SEND_LINK and not dialect.has_link_message:
        # The state allows it and the dialect has none: refused, and nothing changes.
        with pytest.raises(LocalProtocolError, match="no Link is due"):
            COMMANDS[command](session, dialect)
        assert session.state is state
        return
    if target is not None:
        COMMANDS[command](session, dialect)
        assert session.state is target
        return
    with pytest.raises(LocalProtocolError, match=f"may not {command.value}"):
        COMMANDS[command](session, dialect)
    assert session.state is State.CLOSED
    assert session.next_event(now=NOW) == ConnectionEnded()


def meaning(state: State, arrival: Input, dialect: Dialect) -> Input:
    """The input that an arrival is here: what a dialect or a session does not have is unknown."""
    is_unknown = arrival is Input.RECEIVE_LINK and not dialect.has_link_message
    is_unknown = is_unknown or (arrival is Input.RECEIVE_NOISE and state not in NOISE_STATES)
    # Before the peer's Handshake nothing is announced by both.
    is_unknown = is_unknown or (arrival in OF_EXTENSIONS and state is not State.SECURE)
    return Input.RECEIVE_UNKNOWN if is_unknown else arrival


@states_of(state for state in LIVE if state not in PAUSED_STATES)
@pytest.mark.parametrize("arrival", ARRIVALS, ids=lambda it: it.name)
def test_every_arrival_in_every_state_that_reads(
    state: State, arrival: Input, dialect: Dialect
) -> None:
    peer = drive(state, remote=remote(dialect), dialect=dialect)
    target = TRANSITIONS.get((state, meaning(state, arrival, dialect)))
    if arrival is Input.RECEIVE_OPEN and state not in (State.IDLE, State.OPEN_SENT):
        # There is no such input: behind the first Open all bytes are frames, and a second one
        # is the start of a frame of 14,677 bytes with an unknown id.
        peer.send_raw(open_bytes(dialect=dialect))
        assert peer.session.next_event(now=NOW) is NEED_DATA
        assert target is None
        return
    ARRIVALS[arrival](peer, dialect)
    if arrival is Input.RECEIVE_END and target is None:
        assert peer.session.next_event(now=NOW) == ConnectionEnded()
        assert peer.session.state is state
        return
    if target is not None:
        assert peer.session.next_event(now=NOW) not in (NEED_DATA, PAUSED)
        assert peer.session.state is target
        return
    # Before its Open, whatever else a peer sends shows as a wrong magic byte.
    with pytest.raises(RemoteProtocolError):
        peer.session.next_event(now=NOW)
    assert peer.session.state is State.CLOSED


@states_of(state for state in State if state in PAUSED_STATES)
@pytest.mark.parametrize("arrival", ARRIVALS, ids=lambda it: it.name)
def test_what_arrives_while_paused_waits(state: State, arrival: Input, dialect: Dialect) -> None:
    peer = drive(state, dialect=dialect)
    ARRIVALS[arrival](peer, dialect)
    assert peer.session.next_event(now=NOW) is PAUSED
    assert peer.session.next_event(now=NOW) is PAUSED
    assert peer.session.state is state


@each_dialect
@pytest.mark.parametrize("state", DEAF, ids=lambda it: it.name)
@pytest.mark.parametrize("arrival", ARRIVALS, ids=lambda it: it.name)
def test_what_arrives_after_the_end_is_dropped(
    arrival: Input, state: State, dialect: Dialect
) -> None:
    peer = drive(state, remote=remote(dialect), dialect=dialect)
    ARRIVALS[arrival](peer, dialect)
    assert peer.session.buffered_bytes == 0
    event = peer.session.next_event(now=NOW)
    assert event == (ConnectionEnded() if state is State.CLOSED else NEED_DATA)
    assert peer.session.state is state


@pytest.mark.parametrize("state", [s for s in LIVE if s not in PAUSED_STATES], ids=lambda s: s.name)
def test_more_is_needed_where_nothing_came(state: State) -> None:
    assert drive(state).session.next_event(now=NOW) is NEED_DATA


def test_all_states_are_reached_and_closed_is_left_by_nothing() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.IDLE}
    assert {received for (state, received) in TRANSITIONS if state is State.CLOSED} == {Input.CLOSE}


def test_the_diagram_says_what_the_table_says() -> None:
    first, *arrows, last = diagram_in("architecture.md")
    assert (first, last) == (("[*]", "IDLE", ""), ("CLOSED", "[*]", ""))
    drawn = {(State[state], Input(happened)): State[target] for state, target, happened in arrows}
    assert drawn == dict(TRANSITIONS)


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[State.IDLE, Input.SEND_DATA] = State.SECURE  # type: ignore[index]
