"""Consumer groups with every stock Python client and every assignor that it has."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.interop import CLIENTS, Client, Reader, Record, Refused, fresh, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CASES = [(name, each) for name, kind in sorted(CLIENTS.items()) for each in kind.strategies]
PARTITIONS = [0, 1, 2, 3]
POLL_S = 0.25


def poll_until(members: list[Reader], condition: Callable[[], bool], what: str) -> list[bytes]:
    """Poll all members until the condition holds; returns the values they read.

    All at once, as members in processes of their own would: kafka-python gives a rebalance up when
    a poll ends in the middle of it, and members polled in turn could go on like that for ever.
    """
    values: list[bytes] = []

    def poll(member: Reader) -> list[bytes]:
        return [record.value or b"" for record in member.poll(POLL_S)]

    with ThreadPoolExecutor(len(members)) as pool:

        def step() -> bool:
            for found in pool.map(poll, members):
                values.extend(found)
            return condition()

        wait_until(step, what)
    return values


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_members_share_the_partitions_and_rebalance(
    bootstrap_servers: str, name: str, strategy: str
) -> None:
    client = CLIENTS[name](bootstrap_servers)
    try:
        share_and_rebalance(client, strategy)
    finally:
        client.close()


def share_and_rebalance(client: Client, strategy: str) -> None:
    topic, group = client.topic(len(PARTITIONS)), fresh("group")
    first = client.reader(group=group, strategy=strategy)
    first.subscribe(topic)
    poll_until([first], lambda: first.assignment() == PARTITIONS, "all partitions for one")
    second = client.reader(group=group, strategy=strategy)
    second.subscribe(topic)

    def shared() -> bool:
        mine, other = first.assignment(), second.assignment()
        return len(mine) == 2 and sorted(mine + other) == PARTITIONS

    poll_until([first, second], shared, "the rebalance after the second joined")
    assert client.group_state(group) == ("Stable", 2)
    client.sender().send(topic, [Record(b"%d" % part, partition=part) for part in PARTITIONS])
    read: list[bytes] = []
    for _ in range(20):
        read += poll_until([first, second], lambda: True, "a poll")
        if len(read) >= len(PARTITIONS):
            break
    assert sorted(read) == [b"0", b"1", b"2", b"3"]
    second.close()
    poll_until([first], lambda: first.assignment() == PARTITIONS, "all partitions again")
    first.close()
    assert client.group_state(group) == ("Empty", 0)
    assert group in client.groups()


def test_a_group_goes_on_where_it_committed(client: Client) -> None:
    topic, group = client.topic(), fresh("group")
    client.sender().send(topic, [Record(b"%d" % number) for number in range(10)])
    first = client.reader(group=group)
    first.subscribe(topic)
    read: list[int] = []

    def some() -> bool:
        read.extend(record.offset for record in first.poll())
        return len(read) == 10

    wait_until(some, "ten records")
    first.commit(topic, {0: 6})
    assert first.committed(topic, 0) == 6
    first.close()
    second = client.reader(group=group)
    second.subscribe(topic)
    rest: list[int] = []

    def others() -> bool:
        rest.extend(record.offset for record in second.poll())
        return len(rest) >= 4

    wait_until(others, "the rest")
    assert rest == [6, 7, 8, 9]


def test_a_stranger_cannot_commit_for_a_group_that_has_members(client: Client) -> None:
    """INV-8."""
    topic, group = client.topic(), fresh("group")
    member = client.reader(group=group)
    member.subscribe(topic)
    poll_until([member], lambda: member.assignment() == [0], "the partition")
    stranger = client.reader(group=group)
    stranger.assign(topic, [0])
    with pytest.raises(Refused) as caught:
        stranger.commit(topic, {0: 5})
    assert caught.value.name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "CommitFailedError")
    assert member.committed(topic, 0) is None


def test_a_static_member_that_comes_back_keeps_its_partitions(client: Client) -> None:
    """KIP-345: no rebalance, so the other member keeps its own as well."""
    topic, group = client.topic(len(PARTITIONS)), fresh("group")
    stays = client.reader(group=group, strategy="range", instance_id="stays")
    goes = client.reader(group=group, strategy="range", instance_id="goes")
    for reader in (stays, goes):
        reader.subscribe(topic)

    def shared() -> bool:
        mine, other = stays.assignment(), goes.assignment()
        return len(mine) == 2 and sorted(mine + other) == PARTITIONS

    poll_until([stays, goes], shared, "two partitions for each")
    before = goes.assignment()
    goes.close()
    assert client.group_state(group) == ("Stable", 2)
    again = client.reader(group=group, strategy="range", instance_id="goes")
    again.subscribe(topic)
    poll_until([stays, again], lambda: again.assignment() == before, "its partitions again")
    assert client.group_state(group) == ("Stable", 2)
    assert sorted(stays.assignment() + before) == PARTITIONS
