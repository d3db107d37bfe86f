"""Values that somebody may write to break a file, or to leave a place in it."""

from __future__ import annotations

import random

from hypothesis import strategies as st

#: Each would do something in one of the formats, were it written as it is.
HOSTILE = [
    b"",
    b"\n",
    b"a.example.com\n0.0.0.0 bank.example",
    b"a.example.com\r\nb.example.com",
    b"a.example.com\x00b",
    b"a.example.com\\",
    b"\\a.example.com",
    b"a.example.com # b",
    b"#a.example.com",
    b"#a@example.com",
    b";a.example.com",
    b'"a.example.com',
    b'a.example.com" redirect',
    b"a.example.com/",
    b"a.example.com/1.2.3.4",
    b"/a.example.com/",
    b"$INCLUDE /etc/passwd",
    b"$INCLUDE.com",
    b"$GENERATE 1-9 a CNAME .",
    b"@",
    b"*",
    b"*.example.com",
    b"a.*.example.com",
    b"example..com",
    b".example.com",
    b"-a.example.com",
    b"a-.example.com",
    b"localhost",
    b"localhost.",
    b"LOCALHOST.LocalDomain",
    b"a.localhost",
    b"printer.local",
    b"1.0.0.127.in-addr.arpa",
    b"com",
    b"com.",
    b"32.1.2.0.192.rpz-ip",
    b"rpz-passthru",
    b"a.rpz-drop",
    b"127.0.0.1",
    b"127.1",
    b"0x7f.0.0.1",
    b"0x7f000001",
    b"2130706433",
    b"010.0.0.1",
    b"1.2.3.4.",
    b"1.2.3",
    b"1.2.3.256",
    b"0.0.0.0",
    b"0.0.0.0/0",
    b"::/0",
    b"128.0.0.0/1",
    b"2000::/3",
    b"::1",
    b"::ffff:127.0.0.1",
    b"::ffff:1.2.3.4",
    b"fe80::1%eth0",
    b"fe80::1",
    b"2001:db8::1%eth0",
    b"192.0.2.1/24",
    b"192.0.2.0/33",
    b"192.0.2.0/-1",
    b"192.0.2.0/024",
    b"192.0.2.0/255.255.255.0",
    b"192.0.2.0/24/24",
    b"192.0.2.1-192.0.2.9",
    b"192.0.2.1, 192.0.2.2 }; flush ruleset; {",
    b"192.0.2.1 -exist\ndestroy x",
    b"192.0.2.1,80",
    b"@example.com",
    b"a@",
    b"a@b@example.com",
    b'"a b"@example.com',
    b"a b@example.com",
    b"a@localhost",
    b"a@[192.0.2.1]",
    b"|sh@example.com",
    b"a@example.com OK",
    b"a.example.com OK",
    b"\xff\xfe",
    b"\xc3\xa4",
    b"a\xe3\x80\x82com\n",
    "\u202eexample.com".encode(),
    "\u2028example.com".encode(),
    "１２７.０.０.１".encode(),
    "ｌｏｃａｌｈｏｓｔ".encode(),
    "ａ.ｌｏｃａｌｈｏｓｔ".encode(),
    "exa＃mple.com".encode(),
    "exa／mple.com".encode(),
    b"a" * 64 + b".com",
    b"a." * 130 + b"com",
    b"xn--.com",
    b"a.xn--",
    b"=cmd|'/C calc'!A1",
    b"@SUM(1)",
    b" =1+1",
    b"+1",
    b"-1",
    b"]",
    b'","',
    b"a.example.com" * 5_000,
]

_PIECES = [
    *(b"\n \r \0 \t # ; \" ' \\ / $ @ * . - _ : , { } ( ) = % | & ! ~ ` [ ]".split(b" ")),
    *(b"a example com localhost local xn-- 0 1 255 127 192.0.2.7 /24 2001:db8:: fe80".split()),
    b"a.example.com",
    b"b@example.org",
    b" ",
    b"\xc3\xa4",
    b"\xe3\x80\x82",
    b"\xff",
    b"\xe2\x80\xa8",
    b"A",
    b"a" * 63,
]

#: Any bytes; what is built of pieces is nearer to what a format takes.
values = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from(_PIECES), max_size=7).map(b"".join),
    st.sampled_from(HOSTILE),
)


def built(count: int, seed: int) -> list[bytes]:
    """Many values of pieces, the same in each run."""
    chosen = random.Random(seed)
    return [b"".join(chosen.choices(_PIECES, k=chosen.randint(1, 7))) for _ in range(count)]


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
