import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.records.transaction_log import (
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tests.unit.protocol.damage import check_damage

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.none() | st.lists(
    st.tuples(st.text(max_size=150), st.lists(INT32, max_size=4).map(tuple)), max_size=4
).map(tuple)
VALUES = st.builds(
    TransactionLogValue,
    INT64,
    INT16,
    INT32,
    st.integers(0, 7),
    PARTITIONS,
    INT64,
    INT64,
    INT64,
    INT64,
    INT16,
    INT16,
)


@given(VALUES)
def test_version_1_carries_everything(value: TransactionLogValue) -> None:
    assert decode_value(encode_value(value)) == value


@given(VALUES)
def test_version_0_leaves_out_what_came_with_tv2(value: TransactionLogValue) -> None:
    found = decode_value(encode_value(value, 0))
    assert found == TransactionLogValue(
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        value.status,
        value.partitions,
        value.last_update_ms,
        value.start_ms,
    )


@given(st.text(max_size=200))
def test_keys_come_back(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


def test_the_bytes_are_those_of_the_schema() -> None:
    value = TransactionLogValue(
        5, 1, 60000, 1, (("t", (0, 2)),), 100, 90, client_transaction_version=2
    )
    assert encode_key("id").hex() == "0000" + "0002" + b"id".hex()
    assert encode_value(value).hex() == "".join(
        [
            "0001",
            "0000000000000005",
            "0001",
            "0000ea60",
            "01",
            "02" + "0274" + "03" + "00000000" + "00000002" + "00",
            "0000000000000064",
            "000000000000005a",
            "01" + "02" + "02" + "0002",
        ]
    )


def test_a_key_of_another_kind_is_not_ours() -> None:
    assert decode_key(b"\x00\x01anything") is None


def test_a_value_of_a_later_version_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_value(b"\x00\x02" + bytes(40))
    assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("version", [0, 1])
def test_damaged_values_raise_protocol_errors_only(version: int) -> None:
    value = TransactionLogValue(5, 1, 6, 1, (("t", (0, 2)), ("u", (1,))), 100, 90, 4, 6, 2, 3)
    check_damage(decode_value, encode_value(value, version), seed=version, rounds=300)
    check_damage(decode_key, encode_key("some id"), seed=version, rounds=100)
