"""Any sequence of requests, failures and crashes: replay agrees with memory, outcomes stand.

Every append may be committed, refused, or caught by a crash, before or after it reached the log.
Leaders remember which outcome each marker brought; their answers may get lost.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.coordinator import RecordContext
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from oncelog.core.limits import PARKED_REQUEST_WAIT_MS_MAX
from oncelog.simulation.agreement import coordinators
from oncelog.transaction import records
from oncelog.transaction.events import (
    AddPartitions,
    EndTxn,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    SendMarkers,
    TransactionEvent,
)
from oncelog.transaction.shard import TransactionCoordinatorShard
from oncelog.transaction.states import LEGAL_PREVIOUS, TransactionMetadata, TransactionState
from oncelog.transaction.store import TransactionConfig
from tests.support.examples import examples
from tests.support.oracles import Logged, transactions_of
from tests.unit.coordinator.support import processor_of
from tests.unit.transaction.context import EPOCH_MAX, Context

E = ErrorCode
S = TransactionState
IDS = ["a", "b"]
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
ids = st.sampled_from(IDS)
REFUSALS = [E.not_enough_replicas, E.kafka_storage_error, E.request_timed_out]
MARKER_ERRORS = [E.none, E.none, E.not_leader_or_follower, E.request_timed_out]


class Coordinator(Context):
    """The test context for several ids; remembers what it sent and what leaders wrote."""

    def __post_init__(self) -> None:
        self.sent: dict[int, object] = {}
        self.written: dict[tuple[str, int, TopicPartition], bool] = {}
        super().__post_init__()

    def send(self, event: TransactionEvent) -> int:
        token = super().send(event)
        self.sent[token] = event
        return token


class CrashingCoordinator(RuleBasedStateMachine):
    """The rules are what clients, leaders, the log and fate may do at any moment."""

    @initialize(version=st.sampled_from([1, 2]), exhausted=st.booleans())
    def start(self, version: int, exhausted: bool) -> None:
        config = TransactionConfig(abort_interval_ms=100)
        self.context = Coordinator(
            version=version, server_version=version, config=config, holds=True
        )
        if exhausted:
            for id_ in IDS:
                fresh = self.context.fresh_producer_id()
                assert fresh is not None
                last = ProducerEpoch(EPOCH_MAX - 2)
                metadata = TransactionMetadata(id_, fresh, last, 500, last_update_timestamp_ms=1)
                self.context.log.append((records.encode(metadata), self.context.now_ms))
            self.context.fail_over()

    # What clients do. Epochs are the current one, the one before, or the one to come.

    def _ids_of(self, id_: str, step: int) -> tuple[ProducerId, ProducerEpoch]:
        metadata = self.context.shard.transactions.get(id_)
        if metadata is None:
            return ProducerId(1), ProducerEpoch(0)
        return metadata.producer_id, ProducerEpoch(max(0, metadata.producer_epoch + step))

    @rule(id_=ids, is_known=st.booleans(), step=st.sampled_from([0, 0, -1]))
    def init(self, id_: str, is_known: bool, step: int) -> None:
        expected = self._ids_of(id_, step) if is_known else (ProducerId(-1), ProducerEpoch(-1))
        self.context.send(InitProducerId(id_, 500, *expected))

    @rule(
        id_=ids,
        partition=st.sampled_from(PARTITIONS),
        step=st.sampled_from([0, 0, 0, -1]),
        verify_only=st.sampled_from([False, False, True]),
        version=st.sampled_from([1, 2]),
    )
    def add(
        self, id_: str, partition: TopicPartition, step: int, verify_only: bool, version: int
    ) -> None:
        producer = self._ids_of(id_, step)
        self.context.send(AddPartitions(id_, *producer, (partition,), verify_only, version))

    @rule(
        id_=ids,
        commit=st.booleans(),
        step=st.sampled_from([0, 0, 0, -1]),
        version=st.sampled_from([1, 2]),
    )
    def end(self, id_: str, commit: bool, step: int, version: int) -> None:
        producer = self._ids_of(id_, step)
        self.context.send(EndTxn(id_, *producer, commit, version))

    @precondition(lambda self: self.context.sent)
    @rule(back=st.integers(0, 5))
    def drop(self, back: int) -> None:
        last = max(self.context.sent)
        self.context.drop(max(1, last - back))

    # What the log does.

    @rule(commit=st.booleans(), version=st.sampled_from([1, 2]))
    def transact(self, commit: bool, version: int) -> None:
        """A well-behaved client gets one transaction to its end, as far as the others let it."""
        self.commit_all()
        if IDS[0] not in self.context.shard.transactions:
            self.context.send(InitProducerId(IDS[0], 500))
            self.commit_all()
        for partition in PARTITIONS[:2]:
            self.add(IDS[0], partition, 0, False, version)
            self.commit_all()
        self.end(IDS[0], commit, 0, version)

    @rule()
    def commit_all(self) -> None:
        while self.context.held:
            self.commit()

    @precondition(lambda self: self.context.held)
    @rule()
    def commit(self) -> None:
        append = self.context.held.pop(0)
        self.context.commit(append)

    @precondition(lambda self: self.context.held)
    @rule(error=st.sampled_from(REFUSALS))
    def refuse(self, error: ErrorCode) -> None:
        append = self.context.held.pop(0)
        processor = self.context.processor
        self.context.run(processor.append_failed(append.append_id, error, self.context.now_ms))

    # What partition leaders do.

    @precondition(lambda self: self.context.markers)
    @rule(
        index=st.integers(0, 7),
        error=st.sampled_from(MARKER_ERRORS),
        is_heard=st.booleans(),
        partition=st.sampled_from([None, *PARTITIONS]),
    )
    def write_markers(
        self, index: int, error: ErrorCode, is_heard: bool, partition: TopicPartition | None
    ) -> None:
        """A leader writes some of the markers, or not; its answer may be lost."""
        context = self.context
        effect = context.markers[index % len(context.markers)]
        chosen = [p for p in effect.partitions if partition in (None, p)]
        if error is E.none:
            for target in chosen:
                self._write_marker(effect, target)
        if is_heard:
            if partition is None or error is not E.none:
                context.markers.remove(effect)
            context.answer(effect, error, partitions=tuple(chosen))

    def _write_marker(self, effect: SendMarkers, partition: TopicPartition) -> None:
        """INV-4: whoever writes it, however often, a transaction ends one way on a partition."""
        prepared = self._last_prepare(effect.transactional_id, len(self.context.log))
        key = (effect.transactional_id, prepared, partition)
        self.context.written.setdefault(key, effect.commit)

    def _last_prepare(self, id_: str, end: int) -> int:
        """The place in the log of an id's last PREPARE before `end`; -1 if there is none."""
        for position in range(end - 1, -1, -1):
            other, metadata = records.decode(self.context.log[position][0])
            if other == id_ and metadata is not None and metadata.state.is_prepared:
                return position
        return -1

    # What fate does.

    @rule(after_ms=st.sampled_from([1, 100, 600, PARKED_REQUEST_WAIT_MS_MAX]))
    def time_passes(self, after_ms: int) -> None:
        self.context.tick(after_ms)

    @rule(logged_count=st.integers(0, 2))
    def crash(self, logged_count: int) -> None:
        """The first appends in flight may have reached the log; the others are lost."""
        context = self.context
        for append in context.held[:logged_count]:
            context.log += [(record, append.timestamp_ms) for record in append.records]
        context.fail_over()

    @rule()
    def resign(self) -> None:
        self.context.run(self.context.processor.resign(self.context.now_ms))
        self.context.fail_over()

    # What always holds.

    @invariant()
    def replay_agrees_with_memory(self) -> None:
        shard = TransactionCoordinatorShard(0)
        processor = processor_of(shard)
        for offset, (entry, timestamp_ms) in enumerate(self.context.log):
            processor.replay(entry, RecordContext(Offset(offset), timestamp_ms))
        assert shard.transactions == self.context.shard.transactions

    @invariant()
    def the_bytes_of_the_log_agree_with_memory(self) -> None:
        """The records as Kafka defines them; nothing of the replay is shared."""
        log = [Logged(entry, timestamp_ms) for entry, timestamp_ms in self.context.log]
        implied = transactions_of(log).transactions
        assert not list(coordinators.transactions(implied, self.context.shard.transactions))

    @invariant()
    def the_log_moves_by_the_table(self) -> None:
        """INV-4: after PREPARE comes COMPLETE of its kind and nothing else. Epochs never fall."""
        before: dict[str, TransactionMetadata] = {}
        for entry, _ in self.context.log:
            id_, metadata = records.decode(entry)
            assert id_ is not None
            assert metadata is not None
            previous = before.get(id_)
            if previous is not None:
                assert previous.state in LEGAL_PREVIOUS[metadata.state]
                if previous.producer_id == metadata.producer_id:
                    assert 0 <= metadata.producer_epoch - previous.producer_epoch <= 1
                else:
                    assert metadata.producer_epoch == 0
                    assert metadata.producer_id > previous.producer_id, "INV-11"
            before[id_] = metadata

    @invariant()
    def what_is_complete_has_every_marker(self) -> None:
        """INV-4: COMPLETE says that every partition has the marker, and the right one."""
        for position, (entry, _) in enumerate(self.context.log):
            id_, metadata = records.decode(entry)
            if metadata is None or id_ is None or not metadata.state.is_complete:
                continue
            at = self._last_prepare(id_, position)
            _, prepared = records.decode(self.context.log[at][0])
            assert prepared is not None
            commit = prepared.state is S.PREPARE_COMMIT
            for partition in prepared.partitions:
                assert self.context.written.get((id_, at, partition)) is commit

    @invariant()
    def what_was_granted_was_committed(self) -> None:
        """INV-5: a producer is told only ids that the log holds, or that COMPLETE will bring."""
        logged = set()
        for entry, _ in self.context.log:
            _, metadata = records.decode(entry)
            assert metadata is not None
            logged.add((metadata.producer_id, metadata.producer_epoch))
            logged.add((metadata.next_producer_id, ProducerEpoch(0)))
        for token, result in self.context.results.items():
            if isinstance(result, InitProducerIdReply | EndTxnReply) and result.producer_id >= 0:
                assert (result.producer_id, result.producer_epoch) in logged, self.context.sent[
                    token
                ]

    @invariant()
    def nobody_is_granted_an_epoch_twice(self) -> None:
        """INV-5: two takeovers never get one epoch."""
        granted = set()
        for token, result in self.context.results.items():
            event = self.context.sent[token]
            if not isinstance(result, InitProducerIdReply) or result.error is not E.none:
                continue
            assert isinstance(event, InitProducerId)
            if event.producer_id == -1:
                assert (result.producer_id, result.producer_epoch) not in granted
                granted.add((result.producer_id, result.producer_epoch))

    def teardown(self) -> None:
        """INV-4: left alone, with leaders that write, every transaction ends as decided."""
        if not hasattr(self, "context"):
            return
        context = self.context
        context.holds = False
        context.commit_held()
        decided = {
            id_: metadata.state
            for id_, metadata in context.shard.transactions.items()
            if metadata.state.is_prepared
        }
        context.fail_over()
        for _ in range(10):
            for effect in context.markers:
                for partition in effect.partitions:
                    self._write_marker(effect, partition)
            context.answer_markers()
            context.run(context.processor.tick(context.now_ms))
        for id_, state in decided.items():
            wanted = S.COMPLETE_COMMIT if state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
            assert context.shard.transactions[id_].state is wanted
        unfinished = [m for m in context.shard.transactions.values() if m.state.is_prepared]
        assert unfinished == []


TestCrashingCoordinator = CrashingCoordinator.TestCase
TestCrashingCoordinator.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None, derandomize=True
)
