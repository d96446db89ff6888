"""Every API that can be answered by an error is, in every version, for each thing it names."""

import pytest

from oncelog.broker.net.request import Api, Request, RequestMeter
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.headers import parse_request_header
from oncelog.protocol.messages import add_partitions_to_txn as add
from oncelog.protocol.messages import create_topics as create
from oncelog.protocol.messages import find_coordinator as find
from oncelog.protocol.messages import leave_group as leave
from oncelog.protocol.messages import list_offsets as lists
from oncelog.protocol.messages import metadata
from oncelog.protocol.messages import offset_commit as commit
from oncelog.protocol.messages import offset_fetch as offsets
from oncelog.protocol.messages import txn_offset_commit as txn_commit
from oncelog.testing.refusals import CAN_FAIL, refusal

ERROR = ErrorCode.not_coordinator
BODIES = sorted(CAN_FAIL - {ApiKey.PRODUCE, ApiKey.FETCH})

REQUESTS: dict[ApiKey, object] = {
    ApiKey.METADATA: metadata.MetadataRequest(topics=(metadata.MetadataRequestTopic(name="t"),)),
    ApiKey.FIND_COORDINATOR: find.FindCoordinatorRequest(coordinator_keys=("g",)),
    ApiKey.ADD_PARTITIONS_TO_TXN: add.AddPartitionsToTxnRequest(
        transactions=(
            add.AddPartitionsToTxnTransaction(
                topics=(add.AddPartitionsToTxnTopic(name="t", partitions=(3,)),)
            ),
        )
    ),
    ApiKey.OFFSET_COMMIT: commit.OffsetCommitRequest(
        topics=(
            commit.OffsetCommitRequestTopic(
                name="t", partitions=(commit.OffsetCommitRequestPartition(partition_index=3),)
            ),
        )
    ),
    ApiKey.TXN_OFFSET_COMMIT: txn_commit.TxnOffsetCommitRequest(
        topics=(
            txn_commit.TxnOffsetCommitRequestTopic(
                name="t", partitions=(txn_commit.TxnOffsetCommitRequestPartition(),)
            ),
        )
    ),
    ApiKey.OFFSET_FETCH: offsets.OffsetFetchRequest(
        groups=(offsets.OffsetFetchRequestGroup(group_id="g", topics=()),)
    ),
    ApiKey.LIST_OFFSETS: lists.ListOffsetsRequest(
        topics=(lists.ListOffsetsTopic(name="t", partitions=(lists.ListOffsetsPartition(),)),)
    ),
    ApiKey.LEAVE_GROUP: leave.LeaveGroupRequest(members=(leave.MemberIdentity(member_id="m"),)),
    ApiKey.CREATE_TOPICS: create.CreateTopicsRequest(topics=(create.CreatableTopic(name="t"),)),
}
TELLS_NO_ERROR = {(ApiKey.OFFSET_FETCH, 1)}
"""Before version 2 an empty list of partitions has no place for it."""


class NoPeer:
    """A connection that a refusal must not touch."""

    id = 1
    listener = "PLAINTEXT"
    principal = "ANONYMOUS"
    peer_host = ""
    client_software = ""

    def fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def mute(self, duration_ms: float) -> None:
        raise AssertionError(duration_ms)


@pytest.mark.parametrize("api", BODIES, ids=lambda api: api.title)
def test_the_error_is_in_the_answer_of_every_version(api: ApiKey) -> None:
    asked = REQUESTS.get(api) or codec.request_class(api)()
    meter = RequestMeter(Api(api, lambda _c, _r: None, reads_bytes=False), 0)
    for version in range(ADVERTISED[api].min, ADVERTISED[api].max + 1):
        frame = codec.encode_request(api, version, 1, "test", asked)
        header = parse_request_header(frame)
        body = codec.parse_request(api, version, frame, header.body_offset)
        answer = refusal(Request(meter, header, body, NoPeer()), ERROR)
        encoded = codec.encode_response(api, version, 1, answer)
        _, offset = codec.parse_response_header(api, version, encoded)
        told = repr(codec.parse_response(api, version, encoded, offset))
        assert ("not_coordinator" in told) != ((api, version) in TELLS_NO_ERROR), told
