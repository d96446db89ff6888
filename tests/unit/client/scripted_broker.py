"""A broker in memory that answers as told: one node, one topic, both coordinators.

It records every request it sees.

`on(api, action)` replaces the answer to the next request of an API: `DROP` breaks the connection
**after** the request took effect, `REFUSE` before it did; an `ErrorCode` is answered, and a
response as it stands.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.batch import BatchHeader, read_header
from oncelog.protocol.codec import encode_response, parse_request, response_class
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchTopicResponse,
    encode_fetch_response,
    parse_fetch_request,
)
from oncelog.protocol.headers import parse_request_header
from oncelog.protocol.messages import add_partitions_to_txn as add_partitions
from oncelog.protocol.messages import (
    api_versions,
    find_coordinator,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    txn_offset_commit,
)
from oncelog.protocol.produce import (
    ProducePartitionResponse,
    ProduceTopicResponse,
    encode_produce_response,
    parse_produce_request,
)
from tests.unit.runtime.memory_network import MemoryNetwork, MemoryTransport

DROP = "drop"
REFUSE = "refuse"
TOPIC_ID = UUID(int=7)
PARTITION_COUNT = 2


class ScriptedBroker:
    """See the module's docstring.

    `seen` lists (api, version, request) in the order of arrival, produce as batch headers.
    """

    def __init__(self, transaction_version: int = 2) -> None:
        self.transaction_version = transaction_version
        self.network = MemoryNetwork(self._on_frame)
        self.seen: list[tuple[ApiKey, int, Any]] = []
        self.log: list[BatchHeader] = []
        self.producer = (7, 0)
        self.topic_id = TOPIC_ID
        self.records: dict[int, bytes] = {}
        """What a fetch at an offset gets, in every partition."""
        self.refused: dict[int, ErrorCode] = {}
        """What a fetch of a partition gets instead, until it is removed here."""
        self.leaderless: set[int] = set()
        """Partitions that metadata names no leader of."""
        self.aborted: list[tuple[int, int]] = []
        self.end_offset = 0
        self.leader_epoch = 0
        """What metadata tells. Fetches and lookups that carry another one are refused."""
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        """(epoch, end offset) that the log has for each epoch that may be asked for."""
        self.topic_id = TOPIC_ID
        self.record_errors: list[tuple[int, str]] = []
        """Records that a produce which fails names."""
        self.newest: dict[ApiKey, int] = {}
        """Versions above which an API is not announced."""
        self.missing: list[set[str]] = [set()]
        """Topics that metadata does not know. The last of these sets stays."""
        self.host, self.port = "b", 1
        """Where the one node of its metadata is."""
        self._actions: dict[ApiKey, deque[object]] = defaultdict(deque)

    def on(self, api: ApiKey, *actions: object) -> None:
        self._actions[api].extend(actions)

    def apis(self, *wanted: ApiKey) -> list[ApiKey]:
        """Which of the wanted APIs were called, in order."""
        return [api for api, _version, _request in self.seen if api in wanted]

    def requests(self, wanted: ApiKey) -> list[Any]:
        return [request for api, _version, request in self.seen if api is wanted]

    def versions(self, wanted: ApiKey) -> set[int]:
        return {version for api, version, _request in self.seen if api is wanted}

    def options(self) -> dict[str, Any]:
        """Options that lead a client here, with waits too short to notice."""
        return {"network": self.network, "retry_backoff_ms": 1, "retry_backoff_max_ms": 2}

    # --- inner ------------------------------------------------------------------------

    def _on_frame(self, transport: MemoryTransport, frame: bytes) -> None:
        header = parse_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        action = self._actions[api].popleft() if self._actions[api] else None
        if action == REFUSE:
            transport.cut()
            return
        error = action if isinstance(action, ErrorCode) else ErrorCode.none
        if api is ApiKey.PRODUCE:
            answer = self._produce(version, header.correlation_id, frame, header.body_offset, error)
        elif api is ApiKey.FETCH:
            answer = self._fetch(version, header.correlation_id, frame, header.body_offset, error)
        else:
            request = parse_request(api, version, frame, header.body_offset)
            self.seen.append((api, version, request))
            is_given = isinstance(action, response_class(api))
            response = action if is_given else self._respond(api, request, error)
            answer = encode_response(api, version, header.correlation_id, response)
        if action == DROP:
            transport.cut()
        else:
            transport.feed(answer)

    def _produce(
        self, version: int, correlation_id: int, frame: bytes, offset: int, error: ErrorCode
    ) -> bytes:
        request = parse_produce_request(memoryview(frame), version, offset)
        topics = []
        for topic in request.topics:
            partitions = []
            for index, records in topic.partitions:
                assert records is not None
                batch = read_header(bytes(records))
                self.seen.append((ApiKey.PRODUCE, version, (index, batch)))
                base_offset = -1 if error else self._append(batch)
                named = self.record_errors if error else ()
                partitions.append(
                    ProducePartitionResponse(index, error, base_offset, record_errors=named)
                )
            topics.append(ProduceTopicResponse(topic.name, topic.topic_id, partitions))
        return encode_produce_response(version, correlation_id, topics)

    def _fetch(
        self, version: int, correlation_id: int, frame: bytes, offset: int, error: ErrorCode
    ) -> bytes:
        request = parse_fetch_request(frame, version, offset)
        self.seen.append((ApiKey.FETCH, version, request))
        topics = []
        for topic in request.topics:
            partitions = [self._fetched(p, error) for p in topic.partitions]
            topics.append(FetchTopicResponse(topic.name, topic.topic_id, partitions))
        return b"".join(encode_fetch_response(version, correlation_id, topics))

    def _fetched(self, asked: FetchPartition, error: ErrorCode) -> FetchPartitionResponse:
        epoch, end_offset = self.epoch_ends.get(asked.last_fetched_epoch, (None, -1))
        is_known = epoch in (None, asked.last_fetched_epoch) and (
            epoch is None or end_offset >= asked.fetch_offset
        )
        return FetchPartitionResponse(
            asked.partition,
            error
            or self.refused.get(asked.partition)
            or self._epoch_error(asked.current_leader_epoch),
            high_watermark=self.end_offset,
            last_stable_offset=self.end_offset,
            log_start_offset=0,
            aborted_transactions=self.aborted,
            records=self.records.get(asked.fetch_offset, b"") if is_known else b"",
            diverging_epoch=None if epoch is None or is_known else (epoch, end_offset),
        )

    def _epoch_error(self, epoch: int) -> ErrorCode:
        if epoch in (-1, self.leader_epoch):
            return ErrorCode.none
        is_old = epoch < self.leader_epoch
        return ErrorCode.fenced_leader_epoch if is_old else ErrorCode.unknown_leader_epoch

    def _end_of_epoch(self, cls: type, request: Any, error: ErrorCode) -> Any:
        def answer(asked: Any) -> Any:
            epoch, end_offset = self.epoch_ends.get(asked.leader_epoch, (-1, -1))
            return offset_for_leader_epoch.EpochEndOffset(
                partition=asked.partition,
                error_code=error or self._epoch_error(asked.current_leader_epoch),
                leader_epoch=epoch,
                end_offset=end_offset,
            )

        return cls(
            topics=tuple(
                offset_for_leader_epoch.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(answer(p) for p in topic.partitions),
                )
                for topic in request.topics
            ),
        )

    def _append(self, batch: BatchHeader) -> int:
        key = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        known = [(b.producer_id, b.producer_epoch, b.base_sequence) for b in self.log]
        if key in known and batch.base_sequence >= 0:
            return known.index(key)
        self.log.append(batch)
        return len(self.log) - 1

    def _respond(self, api: ApiKey, request: Any, error: ErrorCode) -> Any:
        cls = response_class(api)
        if api is ApiKey.API_VERSIONS:
            return self._versions(cls)
        if api is ApiKey.METADATA:
            return self._metadata(cls, (t.name for t in request.topics or ()))
        if api is ApiKey.FIND_COORDINATOR:
            node = find_coordinator.Coordinator(node_id=1, host="b", port=1, error_code=error)
            return cls(coordinators=(node,))
        if api is ApiKey.ADD_PARTITIONS_TO_TXN:
            return self._add_partitions(cls, request, error)
        if api is ApiKey.TXN_OFFSET_COMMIT:
            return self._offsets(cls, request, error)
        if api is ApiKey.INIT_PRODUCER_ID and not error:
            self.producer = (7, self.producer[1] + 1)
        if api is ApiKey.END_TXN and not error and self.transaction_version >= 2:
            # A repeat carries the former epoch and is answered like the first (KIP-890).
            self.producer = (7, request.producer_epoch + 1)
        if api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            return self._end_of_epoch(cls, request, error)
        if api is ApiKey.OFFSET_COMMIT:
            return cls()
        if api is ApiKey.LIST_OFFSETS:
            return self._list_offsets(cls, request, error)
        if api in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
            producer_id, epoch = (-1, -1) if error else self.producer
            return cls(error_code=error, producer_id=producer_id, producer_epoch=epoch)
        return cls(error_code=error)

    def _versions(self, cls: type) -> Any:
        return cls(
            api_keys=tuple(
                api_versions.ApiVersion(
                    api_key=key,
                    min_version=r.min,
                    max_version=min(r.max, self.newest.get(ApiKey(key), r.max)),
                )
                for key, r in ADVERTISED.items()
            ),
            finalized_features_epoch=0,
            finalized_features=(
                api_versions.FinalizedFeatureKey(
                    name="transaction.version",
                    max_version_level=self.transaction_version,
                    min_version_level=self.transaction_version,
                ),
            ),
        )

    def _metadata(self, cls: type, names: Iterable[str]) -> Any:
        missing = self.missing.pop(0) if len(self.missing) > 1 else self.missing[0]
        partitions = tuple(
            metadata.MetadataResponsePartition(
                partition_index=i,
                leader_id=-1 if i in self.leaderless else 1,
                leader_epoch=self.leader_epoch,
            )
            for i in range(PARTITION_COUNT)
        )
        return cls(
            brokers=(metadata.MetadataResponseBroker(node_id=1, host=self.host, port=self.port),),
            topics=tuple(
                metadata.MetadataResponseTopic(
                    name=name,
                    topic_id=self.topic_id,
                    partitions=() if name == "bad" or name in missing else partitions,
                    error_code=ErrorCode.invalid_topic_exception
                    if name == "bad"
                    else ErrorCode.unknown_topic_or_partition
                    if name in missing
                    else ErrorCode.none,
                )
                for name in names
            ),
        )

    def _list_offsets(self, cls: type, request: Any, error: ErrorCode) -> Any:
        return cls(
            topics=tuple(
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            error_code=error,
                            offset=0 if p.timestamp == -2 else self.end_offset,
                            leader_epoch=self.leader_epoch,
                        )
                        for p in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _add_partitions(self, cls: type, request: Any, error: ErrorCode) -> Any:
        (transaction,) = request.transactions
        topics = tuple(
            add_partitions.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    add_partitions.AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=error,
                    )
                    for index in topic.partitions
                ),
            )
            for topic in transaction.topics
        )
        result = add_partitions.AddPartitionsToTxnResult(transactional_id="", topic_results=topics)
        return cls(results_by_transaction=(result,))

    def _offsets(self, cls: type, request: Any, error: ErrorCode) -> Any:
        return cls(
            topics=tuple(
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        txn_offset_commit.TxnOffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=error,
                        )
                        for p in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )
