"""The digest of a set: golden vectors, the same by another implementation, the sum's width."""

import random
from pathlib import Path

import pytest
from equal_sums import equal_sums
from set_digests import digest_of, keyed_blake3

from hyperbloom.digests import (
    ELEMENT_BYTES,
    ELEMENT_KEY,
    EMPTY_DIGEST,
    STATE_KEY,
    SUM_MODULUS,
    element_sum,
    set_digest,
    sum_of_schema_3,
)
from hyperbloom.keys import keyed_hash

#: As docs/store.md shows them; made by set_digests.py, which shares nothing with the product.
GOLDEN = [
    ([], "00" * 32),
    ([b""], "243ca931d22a04301846a46be1da5ed5bfceb1366c09edb6f694de285057d9f5"),
    ([b"a"], "b672f1d3b8766c1aa1b49e5c9c686de0013ae011debd0d9959ce83fe8600da15"),
    ([b"a", b"b"], "79e4a1aa643e3369eae3f73566c7b71a294eced8558dfa21f078c6aeb5de6c74"),
    (
        [bytes(number % 251 for number in range(3_000))],
        "1cef17b139ef499758a6de5d4743306926d63a5c18a4451b0fb9857c548176fd",
    ),
    (
        [b"%d" % number for number in range(1_000)],
        "5f2ded82f88bbcaf4027cd498a134c2108676109e6e1d2601a96a1e9258410ee",
    ),
]


def digest(values) -> bytes:
    return set_digest(len(values), element_sum(values))


@pytest.mark.parametrize(("values", "expected"), GOLDEN, ids=range(len(GOLDEN)))
def test_golden_vectors(values, expected):
    assert digest(values).hex() == expected
    assert digest(values[::-1]).hex() == expected


def test_the_page_shows_the_vectors():
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    assert all(expected in page for _, expected in GOLDEN)


@pytest.mark.parametrize(("values", "expected"), GOLDEN[:5], ids=range(5))
def test_golden_vectors_by_the_description_alone(values, expected):
    assert digest_of(values).hex() == expected


def test_an_element_has_all_its_bytes():
    element = keyed_blake3(b"hyperbloom set digest 1: element", b"a", 512)
    assert element_sum([b"a"]) == int.from_bytes(element, "little")
    assert (element[:8].hex(), element[-8:].hex()) == ("ec7c3dea6ffdce2b", "ab8aacd646048444")


def test_the_modulus_is_wide_enough_for_the_best_attack_known():
    """Wagner's k-tree takes 2^(2·sqrt(bits)) steps: no narrower sum is to come back unseen."""
    bits = (SUM_MODULUS - 1).bit_length()
    assert 2**bits == SUM_MODULUS
    assert 2 * bits**0.5 >= 128
    top = element_sum([b"%d" % number for number in range(64)])
    assert top >> (bits - 8), "the sum's last byte is used"
    assert bits == ELEMENT_BYTES * 8


def test_each_bit_of_the_sum_and_the_count_are_in_the_digest():
    total = element_sum([b"a", b"b"])
    digests = {set_digest(2, total ^ 1 << bit) for bit in range(8 * ELEMENT_BYTES)}
    digests |= {set_digest(2, total), set_digest(3, total)}
    assert len(digests) == 8 * ELEMENT_BYTES + 2


def test_sums_add_up_and_values_can_be_taken_out():
    rng = random.Random(7)
    values = [rng.randbytes(rng.randrange(200)) + b"%d" % number for number in range(1_500)]
    parts = element_sum(values[:3]) + element_sum(values[3:516]) + element_sum(values[516:])
    assert parts % SUM_MODULUS == element_sum(values)
    assert (element_sum(values) - element_sum(values[9:])) % SUM_MODULUS == element_sum(values[:9])
    assert element_sum([]) == 0
    assert set_digest(0, 0) == EMPTY_DIGEST


def test_elements_and_digests_have_keys_of_their_own():
    assert ELEMENT_KEY != STATE_KEY
    assert len(ELEMENT_KEY) == len(STATE_KEY) == 32


def test_a_real_forgery_of_the_old_sum_is_none_of_the_digest():
    one, other = equal_sums()
    assert not set(one) & set(other)
    assert len(set(one)) == len(set(other)) == len(one)
    assert sum(map(len, one)) == sum(map(len, other))
    old = [
        sum(int.from_bytes(keyed_hash(value), "big") for value in values) % 2**256
        for values in (one, other)
    ]
    assert old[0] == old[1] == sum_of_schema_3(one) % 2**256
    assert digest(one) != digest(other)
