"""Versions that kio does not know yet, judged by bytes that Apache Kafka's own classes wrote.

`tests/interop/java/Messages.java` writes them into `golden/messages.json`; the interop suite
(test_definitions.py) writes them anew and compares. Whatever kio learns leaves this file.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from uuid import UUID

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.protocol.codec import reader, request_class, response_class, writer
from oncelog.protocol.messages import api_versions, delete_groups, txn_offset_commit
from tests.unit.protocol.judge import CASES, UNJUDGED
from tests.unit.protocol.test_codec import GOLDEN

TOPIC = UUID("01234567-89ab-cdef-1032-547698badcfe")

VALUES: list[tuple[str, int, Any]] = [
    (
        "api_versions",
        5,
        api_versions.ApiVersionsRequest(
            client_software_name="apache-kafka-java",
            client_software_version="4.4.0",
            cluster_id="4L6g3nShT-eMCtK--X86sw",
            node_id=7,
        ),
    ),
    (
        "api_versions",
        5,
        api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="1"),
    ),
    (
        "api_versions",
        5,
        api_versions.ApiVersionsResponse(
            api_keys=(api_versions.ApiVersion(api_key=18, min_version=0, max_version=5),),
            throttle_time_ms=3,
            supported_features=(
                api_versions.SupportedFeatureKey(
                    name="group.version", min_version=0, max_version=1
                ),
            ),
            finalized_features_epoch=8,
            finalized_features=(
                api_versions.FinalizedFeatureKey(
                    name="group.version", max_version_level=1, min_version_level=1
                ),
            ),
        ),
    ),
    (
        "api_versions",
        5,
        api_versions.ApiVersionsResponse(error_code=ErrorCode.rebootstrap_required),
    ),
    (
        "txn_offset_commit",
        6,
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="copy",
            group_id="readers",
            producer_id=5,
            producer_epoch=3,
            generation_id_or_member_epoch=4,
            member_id="member",
            group_instance_id="instance",
            topics=(
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC,
                    partitions=(
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=1,
                            committed_offset=17,
                            committed_leader_epoch=2,
                            committed_metadata="meta",
                        ),
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=2, committed_offset=1 << 40
                        ),
                    ),
                ),
            ),
        ),
    ),
    (
        "txn_offset_commit",
        6,
        txn_offset_commit.TxnOffsetCommitResponse(
            throttle_time_ms=9,
            topics=(
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC,
                    partitions=(
                        txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=1),
                        txn_offset_commit.TxnOffsetCommitResponsePartition(
                            partition_index=2, error_code=ErrorCode.stale_member_epoch
                        ),
                    ),
                ),
            ),
        ),
    ),
    ("delete_groups", 3, delete_groups.DeleteGroupsRequest(groups_names=("one", "two"))),
    (
        "delete_groups",
        3,
        delete_groups.DeleteGroupsResponse(
            throttle_time_ms=1,
            results=(
                delete_groups.DeletableGroupResult(group_id="one"),
                delete_groups.DeletableGroupResult(
                    group_id="two",
                    error_code=ErrorCode.group_deletion_failed,
                    error_message="why",
                ),
            ),
        ),
    ),
]


def kind_of(value: object) -> str:
    return "request" if type(value).__name__.endswith("Request") else "response"


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize(
    ("api", "version"), [case for case in CASES if case in UNJUDGED], ids=lambda each: str(each)
)
def test_kafkas_own_bytes_are_read_and_written(api: Any, version: int, kind: str) -> None:
    wanted = [v for name, of, v in VALUES if (name, of) == (api.schema_name, version)]
    wanted = [value for value in wanted if kind_of(value) == kind]
    golden = [b64decode(text) for text in GOLDEN[api.schema_name][kind][str(version)]]
    cls = request_class(api) if kind == "request" else response_class(api)
    assert wanted
    assert [reader(cls, version, flexible=True)(raw, 0) for raw in golden] == wanted
    for value, raw in zip(wanted, golden, strict=True):
        out = bytearray()
        writer(cls, version, flexible=True)(out, value)
        assert bytes(out) == raw
