"""Produce and consume with every stock Python client, and each reads what the others wrote."""

import asyncio

import pytest

from oncelog.client import Consumer, TopicPartition
from oncelog.protocol.batch import iter_headers
from tests.support.interop import CLIENTS, Client, Record, Refused, read_to_end

pytestmark = [pytest.mark.interop, pytest.mark.slow]

BASE_MS = 1_700_000_000_000
CASES = [
    pytest.param(name, codec, marks=[pytest.mark.soak] if (at + place) % 2 else [])
    for at, (name, kind) in enumerate(sorted(CLIENTS.items()))
    for place, codec in enumerate(kind.codecs)
]
"""In `make test` every second codec of each client, another half of them with the next client."""


def mixed(count: int) -> list[Record]:
    """Records with keys, headers, times, an empty value and a tombstone among them."""
    some = [
        Record(b"value %d" % n, b"k%d" % (n % 3), (("n", b"%d" % n),), BASE_MS + n)
        for n in range(count)
    ]
    return [*some, Record(b"", b"empty", (), BASE_MS + count), Record(None, b"gone", (), BASE_MS)]


def codecs_stored(bootstrap_servers: str, topic: str) -> set[str]:
    """Codecs of the partition's batches, as our own client fetches them."""

    async def work() -> set[str]:
        async with Consumer(bootstrap_servers) as consumer:
            fetched = await consumer.fetch_batches(TopicPartition(topic, 0), 0)
            return {header.codec for _position, header in iter_headers(fetched.batches)}

    return asyncio.run(work())


@pytest.mark.parametrize(("writer", "codec"), CASES)
def test_every_client_reads_what_one_wrote(bootstrap_servers: str, writer: str, codec: str) -> None:
    records = mixed(300)
    clients = [made(bootstrap_servers) for made in CLIENTS.values()]
    try:
        (client,) = [made for made in clients if made.name == writer]
        topic = client.topic()
        assert client.sender(codec=codec).send(topic, records) == list(range(len(records)))
        for reader in clients:
            found = read_to_end(reader, topic)
            assert [r.offset for r in found] == list(range(len(records)))
            assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in found] == [
                (r.value, r.key, r.headers, r.timestamp_ms) for r in records
            ]
    finally:
        for made in clients:
            made.close()
    # Clients send a batch as it is where compressing would not make it smaller.
    assert codecs_stored(bootstrap_servers, topic) - {"none"} == {codec} - {"none"}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_whatever_acks_are_asked_for(client: Client, acks: int | str) -> None:
    topic = client.topic()
    offsets = client.sender(acks=acks, idempotent=None if acks == "all" else False).send(
        topic, [Record(b"%d" % n) for n in range(50)]
    )
    if acks != 0:
        assert offsets == list(range(50))
    else:
        # Nothing says when they are there.
        wait_for_values(client, topic, 50)
    assert [r.value for r in read_to_end(client, topic)] == [b"%d" % n for n in range(50)]


def wait_for_values(client: Client, topic: str, count: int) -> None:
    reader = client.reader()
    reader.assign(topic, [0])
    seen = 0
    while seen < count:
        seen += len(reader.poll())
    reader.close()


def test_an_idempotent_producer_keeps_the_order_of_each_partition(client: Client) -> None:
    """INV-2."""
    topic = client.topic(3)
    sender = client.sender(idempotent=True)
    records = [Record(b"%d" % n, partition=n % 3) for n in range(600)]
    for start in range(0, 600, 100):
        sender.send(topic, records[start : start + 100])
    for partition in range(3):
        values = [r.value for r in read_to_end(client, topic, 3) if r.partition == partition]
        assert values == [b"%d" % n for n in range(partition, 600, 3)]


def test_a_record_beyond_the_topics_limit_is_refused_and_the_next_is_not(client: Client) -> None:
    topic = client.topic(config={"max.message.bytes": "2000"})
    with pytest.raises(Refused) as caught:
        client.sender().send(topic, [Record(b"x" * 5_000)])
    assert caught.value.name in ("MESSAGE_TOO_LARGE", "MSG_SIZE_TOO_LARGE")
    assert client.sender().send(topic, [Record(b"small")]) == [0]
