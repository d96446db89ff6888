"""The context of the transaction coordinator's tests: a processor, its log, and partition leaders
that
answer on demand.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from oncelog.coordinator import (
    Append,
    CoordinatorMetadata,
    CoordinatorRecord,
    EventProcessor,
    Output,
    RecordContext,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from oncelog.transaction import records
from oncelog.transaction.events import (
    AddPartitions,
    AddPartitionsReply,
    DescribeTransaction,
    DescribeTransactionReply,
    EndTxn,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    MarkersWritten,
    Notice,
    SendMarkers,
    TransactionEffect,
    TransactionEvent,
    TransactionReply,
)
from oncelog.transaction.life import Outcomes
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import TransactionMetadata, TransactionState
from oncelog.transaction.store import Proposal, TransactionConfig

ID = "orders"
P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
OFFSETS = TopicPartition("__consumer_offsets", 7)
FIRST_PRODUCER_ID = ProducerId(1000)
EPOCH_MAX = 32767


def initialised(producer_id: int, epoch: int) -> InitProducerIdReply:
    """What a producer is answered that may begin under this id and epoch."""
    return InitProducerIdReply(ErrorCode.none, ProducerId(producer_id), ProducerEpoch(epoch))


def ended(producer_id: int, epoch: int) -> EndTxnReply:
    """What a producer is answered that goes on under this id and epoch."""
    return EndTxnReply(ErrorCode.none, ProducerId(producer_id), ProducerEpoch(epoch))


def read_again(record: CoordinatorRecord) -> CoordinatorRecord:
    """A record as a load has it, which has to say what the shard that made it applies (D2)."""
    read = CoordinatorRecord(record.key, record.value)
    if isinstance(record.decoded, Proposal):
        assert records.decode(read)[1] == record.decoded.after
    return read


@dataclass
class Context:
    """Appends are committed at once unless `holds`; then they wait in `held` for `commit_held` or
    `fail_held`.
    """

    version: int = 2
    server_version: int = 2
    """The finalized level of `transaction.version`."""
    config: TransactionConfig = field(default_factory=TransactionConfig)
    coordinator_epoch: int = 3
    holds: bool = False

    def __post_init__(self) -> None:
        self.now_ms = 1_000_000
        self.log: list[tuple[CoordinatorRecord, int]] = []
        self.held: list[Append] = []
        # Which kind of result a token has, its test knows.
        self.results: dict[int, Any] = {}
        self.asked: dict[int, TransactionEvent] = {}
        self.markers: list[SendMarkers] = []
        self.notices: list[Notice] = []
        self.has_producer_ids = True
        self._next_producer_id = int(FIRST_PRODUCER_ID)
        self._next_token = 1
        self.load()

    def load(self) -> None:
        """Start a leadership: a fresh shard, replayed from the log, activated."""
        shard = TransactionCoordinatorShard(self.coordinator_epoch, self.config)
        metadata = CoordinatorMetadata(transaction_version=self.server_version)
        self.processor = EventProcessor(shard, metadata)
        for offset, (entry, timestamp_ms) in enumerate(self.log):
            self.processor.replay(entry, RecordContext(Offset(offset), timestamp_ms))
        self.run(self.processor.activate(self.now_ms))

    def fail_over(self) -> None:
        """Crash: what is not in the log is lost. Another leader takes over."""
        self.held.clear()
        self.markers.clear()
        self.coordinator_epoch += 1
        self.load()

    def fresh_producer_id(self) -> ProducerId | None:
        if not self.has_producer_ids:
            return None
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id - 1)

    # The shell.

    def run(self, output: Output[TransactionReply, TransactionEffect]) -> None:
        for reply in output.replies:
            assert isinstance(reply.token, int)
            assert reply.token not in self.results, "a request is answered once"
            self.results[reply.token] = reply.value
        for effect in output.effects:
            if isinstance(effect, Notice):
                self.notices.append(effect)
                continue
            assert isinstance(effect, SendMarkers)
            self.markers.append(effect)
        for append in output.appends:
            if not append.records:
                self.give_producer_id(append)
            elif self.holds:
                self.held.append(append)
            else:
                self.commit(append)

    def give_producer_id(self, append: Append) -> None:
        fresh = self.fresh_producer_id()
        if fresh is None:
            error = ErrorCode.coordinator_load_in_progress
            self.run(self.processor.append_failed(append.append_id, error, self.now_ms))
        else:
            self.run(self.processor.producer_id_taken(append.append_id, fresh, self.now_ms))

    def commit(self, append: Append) -> None:
        base = Offset(len(self.log))
        self.log += [(read_again(record), append.timestamp_ms) for record in append.records]
        self.run(self.processor.committed(append.append_id, base, self.now_ms))

    def commit_held(self) -> None:
        held, self.held = self.held, []
        for append in held:
            self.commit(append)

    def fail_held(self, error: ErrorCode) -> None:
        held, self.held = self.held, []
        for append in held:
            self.run(self.processor.append_failed(append.append_id, error, self.now_ms))

    def send(self, event: TransactionEvent) -> int:
        """Submit a request; its answer, if and when there is one, is in `results` under the
        returned token.
        """
        token = self._next_token
        self._next_token += 1
        self.asked[token] = event
        self.run(self.processor.submit(event, token, self.now_ms))
        return token

    def drop(self, token: int) -> None:
        """The connection of a request closes."""
        if token in self.asked:
            assert self.processor.drop(self.asked[token], token) is None

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.run(self.processor.tick(self.now_ms))

    # Requests.

    def start_init(
        self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000, id_: str = ID
    ) -> int:
        return self.send(
            InitProducerId(id_, timeout_ms, ProducerId(producer_id), ProducerEpoch(epoch))
        )

    def init(
        self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000, id_: str = ID
    ) -> InitProducerIdReply:
        result = self.results[self.start_init(producer_id, epoch, timeout_ms, id_)]
        assert isinstance(result, InitProducerIdReply)
        return result

    def start_add(
        self,
        *partitions: TopicPartition,
        producer_id: int | None = None,
        epoch: int | None = None,
        verify_only: bool = False,
        version: int | None = None,
    ) -> int:
        now = self.metadata
        return self.send(
            AddPartitions(
                ID,
                now.producer_id if producer_id is None else ProducerId(producer_id),
                now.producer_epoch if epoch is None else ProducerEpoch(epoch),
                partitions or (P0,),
                verify_only,
                self.version if version is None else version,
            )
        )

    def add(self, *partitions: TopicPartition, **options: object) -> AddPartitionsReply:
        result = self.results[self.start_add(*partitions, **options)]  # type: ignore[arg-type]
        assert isinstance(result, AddPartitionsReply)
        return result

    def start_end(
        self,
        commit: bool,
        producer_id: int | None = None,
        epoch: int | None = None,
        version: int | None = None,
    ) -> int:
        now = self.metadata
        return self.send(
            EndTxn(
                ID,
                now.producer_id if producer_id is None else ProducerId(producer_id),
                now.producer_epoch if epoch is None else ProducerEpoch(epoch),
                commit,
                self.version if version is None else version,
            )
        )

    def end(self, commit: bool, **options: object) -> EndTxnReply:
        result = self.results[self.start_end(commit, **options)]  # type: ignore[arg-type]
        assert isinstance(result, EndTxnReply)
        return result

    def describe(self, id_: str = ID) -> DescribeTransactionReply:
        result = self.results[self.send(DescribeTransaction(id_, include_life=True))]
        assert isinstance(result, DescribeTransactionReply)
        return result

    # Markers.

    def answer_markers(
        self,
        error: ErrorCode = ErrorCode.none,
        deleted: tuple[TopicPartition, ...] = (),
        *,
        is_closed: bool = False,
    ) -> None:
        """Every leader that was sent a marker answers."""
        sent, self.markers = self.markers, []
        for effect in sent:
            self.answer(effect, error, deleted, is_closed=is_closed)

    def answer(
        self,
        effect: SendMarkers,
        error: ErrorCode = ErrorCode.none,
        deleted: tuple[TopicPartition, ...] = (),
        partitions: tuple[TopicPartition, ...] | None = None,
        *,
        is_closed: bool = False,
    ) -> None:
        """Leaders answer; `is_closed`: they refuse, and have nothing open of the producer."""
        asked = effect.partitions if partitions is None else partitions
        outcomes = tuple((partition, error) for partition in asked if partition not in deleted)
        closed = outcomes if is_closed else ()
        self.report(effect, () if is_closed else outcomes, deleted, closed)

    def report(
        self,
        effect: SendMarkers,
        outcomes: Outcomes,
        deleted: tuple[TopicPartition, ...] = (),
        closed: Outcomes = (),
    ) -> None:
        """Leaders answer, each partition as it is told."""
        event = MarkersWritten(
            effect.transactional_id,
            effect.producer_id,
            effect.producer_epoch,
            effect.coordinator_epoch,
            outcomes,
            deleted,
            effect.ordinal,
            closed,
        )
        self.run(self.processor.submit(event, None, self.now_ms))

    # What stands.

    @property
    def shard(self) -> TransactionCoordinatorShard:
        shard = self.processor.shard
        assert isinstance(shard, TransactionCoordinatorShard)
        return shard

    @property
    def metadata(self) -> TransactionMetadata:
        return self.shard.transactions[ID]

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    def is_in(self, state: TransactionState) -> bool:
        """The same as a call: after `assert context.state is ...` a type checker expects that state
        to stay, whatever the context is told to do.
        """
        return self.state is state

    @property
    def ids(self) -> tuple[ProducerId, ProducerEpoch]:
        return self.metadata.producer_id, self.metadata.producer_epoch

    def go_to(self, state: TransactionState) -> None:
        """Bring the id there by requests, from nothing."""
        if ID not in self.shard.transactions:
            self.init()
        if state is TransactionState.EMPTY:
            return
        self.add(P0, P1)
        if state is TransactionState.ONGOING:
            return
        commit = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        assert self.end(commit).error is ErrorCode.none
        if state.is_complete:
            self.answer_markers()
        assert self.state is state

    def force_epoch(self, epoch: int) -> None:
        """Rewrite the log's last word about the id with another epoch, and lead anew: as if there
        had been that many.
        """
        self.log.append(
            (
                records.encode(replace(self.metadata, producer_epoch=ProducerEpoch(epoch))),
                self.now_ms,
            )
        )
        self.fail_over()
