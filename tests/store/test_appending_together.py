"""Appends that stand next to one another in a group are applied as one; nobody can tell."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.store import AppendValues, ForgetValues, PutFeed, Store
from hyperbloom.store.limits import PIECE_BYTES
from hyperbloom.store.values.append import runs_of
from hyperbloom.store.writer import commit_group

FEEDS = [b"1" * 32, b"2" * 32]
WORDS = [b"a", b"b", b"c", b"ab", b"k" * 600, b"k" * 599 + b"l", b"k" * 498]

MANY = [b"%03d" % number for number in range(60)]

#: A few of all lengths, and so many short ones that they are put by one call; some come twice.
some_values = st.lists(st.sampled_from(WORDS), max_size=3) | st.lists(
    st.sampled_from(MANY), min_size=10, max_size=40
)
appends = st.builds(
    lambda feed, values, who, at, restores: AppendValues(
        feed, values, bytes([who]) * 32, at, restores=restores
    ),
    st.sampled_from(FEEDS),
    some_values,
    st.integers(0, 2),
    st.integers(0, 9),
    st.booleans(),
)
forgets = st.builds(
    lambda feed, values, erase: ForgetValues(feed, values, erase=erase, absent=True),
    st.sampled_from(FEEDS),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=2, unique=True),
    st.booleans(),
)


def opened(tmp_path_factory, name):
    store = Store.open(tmp_path_factory.mktemp("store") / name, durable=False)
    commit_group(store.environment, [PutFeed(feed, {}) for feed in FEEDS])
    return store


def held_by(store, feed):
    return store.log_slice(feed, 0, limit=99, max_bytes=99_999).records


@settings(max_examples=60, deadline=None)
@given(st.lists(appends | forgets, max_size=14), st.sampled_from([1_000, PIECE_BYTES]))
def test_a_group_does_what_its_operations_do_one_by_one(tmp_path_factory, operations, run_bytes):
    together, alone = (opened(tmp_path_factory, name) for name in ("together", "alone"))
    try:
        results = commit_group(together.environment, operations, run_bytes=run_bytes)
        by_one = [commit_group(alone.environment, [operation])[0] for operation in operations]
        assert [getattr(one, "values", one) for one in results] == [
            getattr(one, "values", one) for one in by_one
        ]
        assert [getattr(one, "forgotten", 0) for one in results] == [
            getattr(one, "forgotten", 0) for one in by_one
        ]
        for feed in FEEDS:
            assert together.feed(feed).digest == alone.feed(feed).digest
            assert [
                store.range_slice(feed, b"", None, limit=99, max_bytes=99_999).values
                for store in (together, alone)
            ] == [sorted(one.value for one in held_by(alone, feed))] * 2
            held = [held_by(store, feed) for store in (together, alone)]
            assert [(one.value, one.origin, one.received_at) for one in held[0]] == [
                (one.value, one.origin, one.received_at) for one in held[1]
            ]
    finally:
        together.close()
        alone.close()


def test_the_numbers_of_neighbours_follow_one_another(store, run, feed):
    run(AppendValues(feed, [b"there"], b"o" * 32, 1))
    operations = [
        AppendValues(feed, values, b"o" * 32, 1)
        for values in ([b"a", b"b"], [b"a", b"there"], [b"c", b"b"], [b"d"])
    ]
    results = commit_group(store.environment, operations)
    assert [one.values for one in results] == [[b"a", b"b"], [], [b"c"], [b"d"]]
    top = 1
    for one in results:
        assert one.first_seq == top + 1
        assert one.top_seq >= top + len(one.values)
        top = one.top_seq
    assert store.feed(feed).top_seq == top


def test_one_of_a_feed_that_is_not_there_harms_only_itself(store, run, feed):
    operations = [AppendValues(key, [b"v"], b"o" * 32, 1) for key in (feed, b"?" * 32)]
    first, second = commit_group(store.environment, operations)
    assert first.values == [b"v"]
    assert "holds no feed" in str(second)


def test_a_run_has_one_feed_one_kind_and_the_weight_of_a_piece():
    def append(feed=FEEDS[0], length=1, **more):
        return AppendValues(feed, [b"v" * length], b"o" * 32, 1, **more)

    heavy = append(length=PIECE_BYTES // 2)
    operations = [append(), append(), append(FEEDS[1]), append(FEEDS[1], restores=True)]
    operations += [PutFeed(FEEDS[0], {}), PutFeed(FEEDS[0], {}), heavy, heavy, append()]
    runs = list(runs_of(operations))
    assert [len(run) for run in runs] == [2, 1, 1, 1, 1, 1, 2]
    assert [one for run in runs for one in run] == operations
    assert list(runs_of([])) == []
    runs = list(runs_of([heavy] * 5, 2 * heavy.size))
    assert [len(run) for run in runs] == [2, 2, 1]


def test_values_out_of_order_have_their_own_numbers(store, run, feed):
    values = [b"%d" % number for number in range(40)]
    first = run(AppendValues(feed, values, b"o" * 32, 1))
    again = run(AppendValues(feed, [*reversed(values), *(v + b"!" for v in values)], b"p" * 32, 2))
    assert (first.values, again.values) == (values, [v + b"!" for v in values])
    records = store.log_slice(feed, 0, limit=99, max_bytes=99_999).records
    assert [record.value for record in records] == [*values, *(v + b"!" for v in values)]
    assert list(store.range_slice(feed, b"", None, limit=99, max_bytes=99_999).values) == sorted(
        record.value for record in records
    )
    assert store.verify().ok
