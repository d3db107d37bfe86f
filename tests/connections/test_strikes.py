"""Who breaks the protocol again and again is banned, and new keys push out no other's strikes."""

from __future__ import annotations

from hyperbloom.connections.limits import MAX_STRUCK
from hyperbloom.connections.strikes import Strikes


def strikes():
    return Strikes(most=3, memory=60.0)


def test_so_many_strikes_are_a_ban_until_the_last_is_forgotten():
    one = strikes()
    assert [one.strike(b"who", (b"who",), now=at) for at in (0.0, 10.0, 20.0)] == [
        False,
        False,
        True,
    ]
    assert one.is_banned(b"who", now=80.0)
    assert not one.is_banned(b"who", now=80.1)


def test_keys_that_a_member_makes_push_out_their_own_strikes_alone():
    one = strikes()
    for _ in range(3):
        one.strike(b"honest", (b"honest",), now=0.0)
        one.strike(b"group", (b"coordinator", b"group"), now=0.0)
    for number in range(2 * MAX_STRUCK):
        key = b"%d" % number
        one.strike(key, (b"coordinator", b"hostile", key), now=0.0)
    assert one.is_banned(b"honest", now=0.0)
    assert one.is_banned(b"group", now=0.0)
    assert len(one._records) <= MAX_STRUCK
