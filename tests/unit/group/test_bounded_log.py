"""In the end every key is a tombstone: so compaction bounds the log by what is alive."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from tests.support.examples import examples
from tests.unit.group.context import T0, T1, Context, Marker, Written, topic_deleted

DAY_MS = 24 * 60 * 60 * 1000
WEEKS_MS = 5 * 7 * DAY_MS
PARTITIONS = (T0, T1)

moves = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("commit", "send", "end", "live"),
                *("delete offset", "delete group", "delete topic", "restart", "wait"),
            ]
        ),
        st.integers(0, 1),
    ),
    max_size=12,
)


def move(c: Context, kind: str, which: int) -> None:
    partition, other = PARTITIONS[which], f"simple-{which}"
    match kind:
        case "commit":
            c.commit(1, group_id=other, partition=partition)
        case "send":
            c.txn_commit(2, 7 + which, group_id=other, partition=partition)
        case "end":
            c.marker(7 + which, commit=which == 0)
        case "live" if "g" not in c.shard.store.groups:
            (member,) = c.stable()
            c.commit(3, member, 1, partition)
            c.leave(member)
        case "delete offset":
            c.submit(e.OffsetDelete(other, (partition,)))
        case "delete group":
            c.submit(e.DeleteGroup("g"))
        case "delete topic":
            c.submit_silently(topic_deleted(e.ZERO_TOPIC_ID))
        case "restart":
            c.restart()
        case "wait":
            c.advance(c.config.offsets_retention_ms // 2)


def last_words(c: Context) -> dict[bytes, bytes | None]:
    """What compaction keeps: of each key the last record that no transaction took back."""
    aborted: set[int] = set()
    pending: dict[int, list[int]] = {}
    for place, item in enumerate(c.log):
        if isinstance(item, Marker):
            settled = pending.pop(item.producer_id, [])
            aborted |= set() if item.commit else set(settled)
        elif item.producer_id >= 0:
            pending.setdefault(item.producer_id, []).append(place)
    return {
        item.record.key: item.record.value
        for place, item in enumerate(c.log)
        if isinstance(item, Written) and place not in aborted
    }


def context() -> Context:
    return Context(GroupConfig(offsets_retention_check_interval_ms=DAY_MS))


@settings(max_examples=examples(20), deadline=None)
@given(moves)
def test_everything_idle_ends_in_tombstones(steps: list[tuple[str, int]]) -> None:
    """Of offsets with and without members, inside transactions, of deleted topics and groups."""
    c = context()
    for kind, which in steps:
        move(c, kind, which)
    for producer_id in (7, 8):
        c.marker(producer_id, commit=True)
    c.advance(WEEKS_MS)
    assert [key for key, value in last_words(c).items() if value is not None] == []
    assert c.shard.store.groups == {}
    assert c.shard.store.offsets.group_ids() == []
    before = len(c.log)
    c.advance(WEEKS_MS)
    assert len(c.log) == before, "and then nothing is written any more"


def test_tombstones_have_the_keys_of_what_they_remove() -> None:
    """As on Kafka's wire: compaction compares the bytes of keys."""
    c = context()
    (member,) = c.stable()
    assert c.commit(3, member, 1) is ErrorCode.none
    c.leave(member)
    c.advance(WEEKS_MS)
    values = {item.record.key for item in c.log if isinstance(item, Written) and item.record.value}
    gone = {
        item.record.key for item in c.log if isinstance(item, Written) and not item.record.value
    }
    assert values == gone
    assert sorted(key[:2] for key in gone) == [b"\x00\x01", b"\x00\x02"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_group_that_only_a_transaction_named_leaves_nothing(commit: bool) -> None:
    c = context()
    c.txn_commit(2, 7, group_id="lone")
    c.marker(7, commit)
    c.advance(WEEKS_MS)
    assert c.shard.store.groups == {}
    assert len(c.log) == (4 if commit else 2)
