"""Which offsets of a TV1 producer come late, by the connections on which they come (INV-6)."""

from oncelog.broker.coordination.offset_connections import OffsetConnections

PARTITION, PRODUCER, EPOCH = 3, 1000, 0
OLD, NEW, NEWEST = 7, 8, 9


class Context:
    def __init__(self, count_max: int = 10) -> None:
        self.connections = OffsetConnections(count_max)

    def took(self, connection: int, producer: int = PRODUCER) -> None:
        self.connections.took(PARTITION, producer, EPOCH, connection)

    def is_late(
        self,
        connection: int,
        *,
        is_open: bool,
        partition: int = PARTITION,
        producer: int = PRODUCER,
        epoch: int = EPOCH,
    ) -> bool:
        return self.connections.is_late(partition, producer, epoch, connection, is_open=is_open)


def test_an_older_connection_is_late_once_a_transaction_of_a_newer_one_has_ended() -> None:
    context = Context()
    context.took(NEW)
    assert context.is_late(OLD, is_open=False)
    context.took(NEW)
    assert context.is_late(OLD, is_open=True)
    assert not context.is_late(NEW, is_open=True)
    assert not context.is_late(NEWEST, is_open=False)


def test_within_one_transaction_no_connection_is_late() -> None:
    context = Context()
    context.took(NEW)
    assert not context.is_late(OLD, is_open=True)
    context.took(OLD)
    assert context.is_late(OLD, is_open=False)


def test_an_older_transaction_on_a_newer_connection_counts_for_good() -> None:
    context = Context()
    context.took(NEW)
    assert not context.is_late(NEWEST, is_open=False)
    context.took(NEW)
    assert context.is_late(OLD, is_open=False)
    assert not context.is_late(NEW, is_open=False)


def test_a_new_epoch_another_producer_and_another_partition_may_use_any_connection() -> None:
    context = Context()
    context.took(NEW)
    assert not context.is_late(OLD, is_open=False, epoch=EPOCH + 1)
    assert not context.is_late(OLD, is_open=False, producer=PRODUCER + 1)
    assert not context.is_late(OLD, is_open=False, partition=PARTITION + 1)


def test_the_producers_that_are_remembered_are_bounded() -> None:
    context = Context(count_max=2)
    for producer in (1, 2, 1, 3):
        context.took(NEW, producer)
    assert context.is_late(OLD, is_open=False, producer=1)
    assert not context.is_late(OLD, is_open=False, producer=2)
    assert context.is_late(OLD, is_open=False, producer=3)
