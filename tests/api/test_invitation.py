"""Invitations: out and in again, and everything that can happen to a line on its way."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.invitation import (
    INVITATION_PREFIX,
    MAX_INVITATION_CHARACTERS,
    Invitation,
    InvitationError,
    decode_invitation,
    encode_invitation,
)
from hyperbloom.keys import keyed_hash

ADDRESSES = st.text(alphabet=string.ascii_lowercase + string.digits + ".:[]é", min_size=1)
INVITATIONS = st.builds(
    Invitation,
    feed_key=st.binary(min_size=32, max_size=32),
    links=st.lists(st.binary(min_size=1, max_size=255), max_size=5).map(tuple),
    addresses=st.lists(ADDRESSES.filter(lambda text: len(text.encode()) <= 255), max_size=8).map(
        tuple
    ),
)
ONE = Invitation(
    feed_key=bytes(range(32)), links=(bytes(137), b"\1" * 137), addresses=("a.example:4365",)
)


@given(INVITATIONS)
def test_out_and_in_again(invitation):
    line = encode_invitation(invitation)
    assert decode_invitation(line) == invitation
    assert decode_invitation(f"  {line}\n") == invitation
    assert set(line.removeprefix(INVITATION_PREFIX)) <= set(
        string.ascii_letters + string.digits + "-_"
    )
    assert len(line) <= MAX_INVITATION_CHARACTERS


def test_the_longest_invitation_fits():
    longest = Invitation(feed_key=bytes(32), links=(bytes(255),) * 5, addresses=("a" * 255,) * 8)
    line = encode_invitation(longest)
    assert len(line) <= MAX_INVITATION_CHARACTERS
    assert decode_invitation(line) == longest


def test_the_form_is_kept():
    """A line made by one version is read by the next."""
    invitation = Invitation(feed_key=bytes(32), links=(b"link",), addresses=("h:1",))
    body = b"\1" + bytes(32) + b"\1\4link" + b"\1\3h:1"
    sealed = body + keyed_hash(body)[:6]
    line = "hyperbloom:" + base64.urlsafe_b64encode(sealed).decode().rstrip("=")
    assert encode_invitation(invitation) == line


def test_a_line_wrapped_by_a_mail_program_is_whole():
    line = encode_invitation(ONE)
    wrapped = "\r\n ".join(line[start : start + 60] for start in range(0, len(line), 60))
    assert decode_invitation(wrapped) == ONE


def test_a_line_cut_anywhere_is_refused():
    line = encode_invitation(ONE)
    for end in range(len(line)):
        with pytest.raises(InvitationError, match="ask for it again"):
            decode_invitation(line[:end])


@given(st.integers(min_value=0), st.sampled_from(string.ascii_letters + string.digits + "-_"))
def test_a_mistyped_character_is_noticed(position, character):
    line = encode_invitation(ONE)
    position = len(INVITATION_PREFIX) + position % (len(line) - len(INVITATION_PREFIX))
    mistyped = line[:position] + character + line[position + 1 :]
    if mistyped != line:
        with pytest.raises(InvitationError, match="damaged or cut short"):
            decode_invitation(mistyped)


@given(st.text(max_size=200) | st.text(max_size=200).map(INVITATION_PREFIX.__add__))
def test_any_text_is_refused_with_a_sentence(text):
    with pytest.raises(InvitationError):
        decode_invitation(text)


@given(st.binary(max_size=200))
def test_any_sealed_bytes_are_read_or_refused(body):
    sealed = body + keyed_hash(body)[:6]
    line = INVITATION_PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")
    try:
        invitation = decode_invitation(line)
    except InvitationError:
        return
    assert encode_invitation(invitation) == line


def sealed_line(body):
    sealed = body + keyed_hash(body)[:6]
    return INVITATION_PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def test_another_version_is_named():
    with pytest.raises(InvitationError, match="version 2, which needs a newer hyperbloom"):
        decode_invitation(sealed_line(b"\2" + bytes(32)))


@pytest.mark.parametrize(
    "body",
    [
        b"\1" + bytes(10),
        b"\1" + bytes(32) + b"\1\5abc",
        b"\1" + bytes(32) + b"\0\0rest",
        b"\1" + bytes(32) + b"\0\1\1\xff",
        b"\1" + bytes(32) + b"\0\1\0",
    ],
)
def test_parts_that_do_not_fit_together(body):
    with pytest.raises(InvitationError):
        decode_invitation(sealed_line(body))


@pytest.mark.parametrize(
    "parts",
    [
        {"feed_key": bytes(31)},
        {"links": (b"x",) * 6},
        {"links": (b"",)},
        {"links": (bytes(256),)},
        {"addresses": ("a:1",) * 9},
        {"addresses": ("a" * 256,)},
        {"addresses": ("",)},
    ],
)
def test_what_does_not_fit_the_form_is_refused_at_once(parts):
    with pytest.raises(InvitationError):
        Invitation(**{"feed_key": bytes(32), "links": (), **parts})


def test_a_huge_text_is_not_decoded():
    with pytest.raises(InvitationError, match="far longer"):
        decode_invitation(INVITATION_PREFIX + "A" * MAX_INVITATION_CHARACTERS)
