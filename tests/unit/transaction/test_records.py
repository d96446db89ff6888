"""Records of `__transaction_state` and the metadata that they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator import CoordinatorRecord, RecordContext, UnknownKind
from oncelog.core.errors import ProtocolError
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from oncelog.protocol.records import transaction_log
from oncelog.transaction import records
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionMetadata, TransactionState, moved

PRODUCER = (ProducerId(1), ProducerEpoch(0))
WRITTEN = [state for state in TransactionState if state.value < 6]
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
)
METADATA = st.builds(
    TransactionMetadata,
    transactional_id=st.text(min_size=1, max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(WRITTEN[1:]),
    partitions=PARTITIONS,
    start_timestamp_ms=st.integers(-1, 2**62),
    last_update_timestamp_ms=st.integers(-1, 2**62),
    previous_producer_id=st.integers(-1, 2**62),
    next_producer_id=st.integers(-1, 2**62),
    client_transaction_version=st.sampled_from([0, 2]),
)


@given(METADATA)
def test_what_is_written_is_read_back(metadata: TransactionMetadata) -> None:
    assert records.decode(records.encode(metadata)) == (metadata.transactional_id, metadata)


def test_an_empty_state_has_no_partition_list() -> None:
    entry = records.encode(TransactionMetadata("a", *PRODUCER, 10))
    assert entry.value is not None
    assert transaction_log.decode_value(entry.value).partitions is None
    assert records.decode(entry)[1] == TransactionMetadata("a", *PRODUCER, 10)


def test_a_tombstone_names_its_id() -> None:
    assert records.decode(records.tombstone("a")) == ("a", None)


def test_a_kind_of_record_that_we_do_not_know_is_named() -> None:
    shard = TransactionCoordinatorShard(0)
    with pytest.raises(UnknownKind) as caught:
        shard.replay(CoordinatorRecord(b"\x00\x09??", b""), RecordContext(Offset(0), 0))
    assert caught.value.kind == 9


def test_the_tombstone_of_an_id_that_never_was_changes_nothing() -> None:
    shard = TransactionCoordinatorShard(0)
    shard.replay(records.tombstone("never seen"), RecordContext(Offset(1), 0))
    assert shard.transactions == {}


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_states_that_are_never_written_are_not_read(state: TransactionState) -> None:
    entry = records.encode(TransactionMetadata("a", *PRODUCER, 10, state))
    with pytest.raises(ProtocolError, match="unknown transaction status"):
        records.decode(entry)


@pytest.mark.parametrize("finalized_version", [0, 1, 2])
def test_records_have_version_0_at_level_0_only(finalized_version: int) -> None:
    """Each move names the producer id before it, which is nothing that TV1 needs."""
    before = TransactionMetadata("a", *PRODUCER, 10)
    entry = records.encode(moved(before, TransactionState.EMPTY, 1), finalized_version)
    assert entry.value is not None
    assert int.from_bytes(entry.value[:2], "big") == min(finalized_version, 1)


def test_no_level_loses_what_tv2_has_to_say() -> None:
    metadata = TransactionMetadata(
        "a",
        *PRODUCER,
        10,
        TransactionState.PREPARE_ABORT,
        previous_producer_id=ProducerId(8),
        next_producer_id=ProducerId(9),
        client_transaction_version=2,
    )
    assert records.decode(records.encode(metadata, 0)) == ("a", metadata)
