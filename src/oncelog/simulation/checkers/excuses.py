"""Decides what the configuration did not promise, as narrowly as possible.

- What happened to one broker excuses nothing of a partition that others led.
- The death of a process excuses nothing, whatever its moment.
- A loss of power excuses nothing where every message is flushed. Elsewhere it may take the *tail*
  of a log: what was written before it and not synced. A log is truncated at one offset, so a record
  is excused only if no later record is left that was known before the loss.
- A failed fsync may take the same: which bytes it left unsynced is undefined. A failed write was
  not acknowledged, so it excuses nothing.
- Damage may take records at or after the damaged place, when recovery finds it: at a start of the
  broker. If the fault names a folder, only that partition is excused.
- With unclean elections a new leader epoch may begin without the tail of the one before.
- Of a partition with several replicas a loss of power takes nothing as long as one member of its
  ISR has lost nothing (`replicated`). A disk that is lost, or put back as it was, is such a loss,
  whatever is flushed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from operator import itemgetter

from oncelog.core.ids import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from oncelog.simulation.checkers.evidence import Evidence, FinalLog, Tracked
from oncelog.simulation.checkers.replicated import ReplicatedPartitions
from oncelog.simulation.checkers.topics import NEVER
from oncelog.simulation.faults_cluster import LOST_DISKS
from oncelog.simulation.history import BrokerDied, BrokerStarted, Fault
from oncelog.simulation.history_cluster import PartitionChanged

__all__ = ["Excuses"]

_FOLDER = re.compile(r"(?:^|[/\s])([A-Za-z0-9._-]+-\d+)/")


class Excuses:
    """Returns why a known record or state may be lost; "" when nothing excuses it."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        promise = evidence.promise
        faults: list[Fault] = evidence.of(Fault)
        lives = (*evidence.of(BrokerStarted), *evidence.of(BrokerDied))
        self._brokers = frozenset(event.who for event in lives)
        self._met: defaultdict[float, set[str]] = defaultdict(set)
        """Time -> the brokers that faults of that time met."""
        for fault in faults:
            # Behind the name there may be the file that was met.
            if (name := fault.target.partition(" ")[0]) in self._brokers:
                self._met[fault.at_s].add(name)
        losses: list[tuple[float, str, frozenset[str]]] = []
        if not promise.flush_every_message:
            # A fault that waits for a file operation strikes later than planned.
            died = [(e.at_s, {e.who}) for e in evidence.of(BrokerDied) if e.cause == "power"]
            planned = [(at_s, self._met[at_s]) for at_s in promise.power_losses_s]
            for at_s, met in (*planned, *died):
                text = f"power was lost at {at_s:.3f} s, and messages are not flushed"
                losses.append((at_s, text, frozenset(met)))
            for at_s in promise.storage_failures_s:
                kinds = [fault.kind for fault in faults if fault.at_s == at_s]
                if not kinds or any("sync" in kind for kind in kinds):
                    text = f"an fsync failed at {at_s:.3f} s with messages not flushed"
                    losses.append((at_s, text, frozenset(self._met[at_s])))
        self._leaders: defaultdict[TopicPartition | str, set[str]] = defaultdict(set)
        """Partition, or topic -> the brokers that led it."""
        for partition, looks in evidence.watermarks.items():
            for label in (partition, partition.topic):
                self._leaders[label].update(look.who for look in looks)
        for fault in faults:
            if fault.kind in LOST_DISKS:
                text = f"a disk was lost at {fault.at_s:.3f} s"
                losses.append((fault.at_s, text, frozenset({fault.target})))
        self._losses = sorted(losses, key=itemgetter(0))
        self._replicated = ReplicatedPartitions(
            evidence.of(PartitionChanged), self._losses, evidence.watermarks
        )
        self._starts = sorted((event.at_s, event.who) for event in evidence.of(BrokerStarted))
        self._known_from_s: dict[TopicPartition, list[float]] = {}
        self._damage = [(at_s, _folders(faults, at_s)) for at_s in sorted(promise.damage_s)]

    @property
    def any_damage(self) -> bool:
        """Return whether any synced data was damaged."""
        return bool(self._damage)

    def between(self, from_s: float, until_s: float, *partitions: TopicPartition | str) -> str:
        """Return why something known at `from_s` may have been lost by `until_s`.

        `partitions` are those that would have to be damaged; a topic's name means all of its
        partitions.
        """
        alone = [each for each in partitions if not self._is_replicated(each)]
        for text in self._of_replicated(from_s, until_s, partitions):
            return text
        if alone or not partitions:
            for _, text in self._losses_between(from_s, until_s, self._led_by(alone)):
                return text
        damage = self.damage(from_s, until_s, *partitions)
        return damage or self._election(from_s, until_s, partitions)

    def unclean_election(self, until_s: float) -> str:
        """Return which unclean election may have taken a marker of a transaction; "" for none."""
        return self._replicated.unclean_election(until_s)

    def _is_replicated(self, partition: TopicPartition | str) -> bool:
        if isinstance(partition, str):
            return bool(self._replicated.of_topic(partition))
        return partition in self._replicated

    def _of_replicated(
        self, from_s: float, until_s: float, partitions: Iterable[TopicPartition | str]
    ) -> Iterator[str]:
        for each in partitions:
            named = self._replicated.of_topic(each) if isinstance(each, str) else [each]
            for partition in named:
                if partition in self._replicated:
                    text = self._replicated.may_lose(partition, from_s, until_s)
                    if text:
                        yield text

    def damage(self, from_s: float, until_s: float, *partitions: TopicPartition | str) -> str:
        """The same for damage alone: `partitions` were damaged, and a broker started on it."""
        for at_s, folders in self._damage:
            if at_s <= until_s and _meets(folders, partitions):
                start_s = self._next_start_s(max(at_s, from_s), self._met_at(at_s))
                if start_s <= until_s:
                    return f"what was synced was damaged at {at_s:.3f} s"
        return ""

    def loss_s(self, from_s: float, until_s: float, *partitions: TopicPartition) -> float:
        """Return when unsynced bytes were first lost between the two times; `from_s` if never."""
        if len(partitions) == 1 and partitions[0] in self._replicated:
            losses = self._replicated.lossy_moments(partitions[0], from_s, until_s)
        else:
            losses = self._losses_between(from_s, until_s, self._led_by(partitions))
        return next((at_s for at_s, _ in losses), from_s)

    def own(self, who: str, from_s: float, until_s: float) -> str:
        """Return why a broker's own logs may end earlier than they did, whatever others have."""
        for _, text in self._losses_between(from_s, until_s, frozenset({who})):
            return text
        met = (at_s for at_s, _ in self._damage if at_s <= until_s and who in self._met_at(at_s))
        return next((f"what was synced was damaged at {at_s:.3f} s" for at_s in met), "")

    def _losses_between(
        self, from_s: float, until_s: float, brokers: frozenset[str]
    ) -> Iterator[tuple[float, str]]:
        for at_s, text, met in self._losses:
            if from_s <= at_s <= until_s and (not met or met & brokers):
                yield at_s, text

    def _led_by(self, partitions: Iterable[TopicPartition | str]) -> frozenset[str]:
        """Return the brokers that led any of these: all brokers where that is not known."""
        led: set[str] = set()
        for partition in partitions:
            leaders = self._leaders.get(partition)
            if leaders is None:
                return self._brokers
            led |= leaders
        return frozenset(led) or self._brokers

    def _met_at(self, at_s: float) -> frozenset[str]:
        """Return the brokers that faults of that time met: all brokers where none is named."""
        return frozenset(self._met[at_s]) or self._brokers

    def storage_failed(self, times_s: Iterable[float], who: str, until_s: float) -> float | None:
        """Return the last of these failures that met a process's broker by then."""
        name = who.partition(".")[0]
        met = [
            at_s
            for at_s in times_s
            if at_s <= until_s and (not self._met[at_s] or name in self._met[at_s])
        ]
        return max(met, default=None)

    def coordinator(self, from_s: float, until_s: float, *more: TopicPartition) -> str:
        """The same for the content of the transaction log, or of these partitions."""
        return self.between(from_s, until_s, TRANSACTION_STATE_TOPIC, *more)

    def offsets(self, from_s: float, until_s: float) -> str:
        """The same for the content of `__consumer_offsets` and `__transaction_state`."""
        return self.between(from_s, until_s, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)

    def tail(self, record: Tracked, offset: int) -> str:
        """Return why a record that was known to be at `offset` may be lost."""
        partition = record.topic_partition
        log = self._evidence.logs.get(partition)
        other = None if log is None else log.record_at(offset)
        if other is not None:
            again = self.repeat(record, other)
            if again:
                return again
        left_s = self.known_beyond_s(partition, offset)
        # The truncation came after the record was sent, and before all later records that are left
        # were known. It may precede the acknowledgement, which a frozen client gets late.
        return self.between(record.sent_s, left_s, partition)

    def known_beyond_s(self, partition: TopicPartition, offset: int) -> float:
        """Return when a client first knew a record at a higher offset that is still in the log."""
        log = self._evidence.logs.get(partition)
        if log is None:
            return NEVER
        known = self._known_from_s.get(partition)
        if known is None:
            known = self._known_from_s[partition] = self._known_from(log)
        return known[bisect_right(log.offsets, offset)]

    def placed_s(self, record: Tracked, offset: int) -> float:
        """Return when a client first knew the place that the record has in the final log.

        A producer sends a record again until it is acknowledged. So what a reader saw before a
        loss, when the record was not yet acknowledged, may have been its place before the loss.
        """
        times = record.known_times(offset)
        done_s = min(record.acked_s, record.failed_s)
        for at_s in times:
            if at_s >= done_s or not self.between(at_s, done_s, record.topic_partition):
                return at_s
        return NEVER

    def _known_from(self, log: FinalLog) -> list[float]:
        """Return for each index when a client first knew one of the records from there on."""
        earliest = NEVER
        known = [NEVER] * (len(log.offsets) + 1)
        for index in range(len(log.offsets) - 1, -1, -1):
            record = log.records[index]
            if record is not None:
                earliest = min(earliest, self.placed_s(record, log.offsets[index]))
            known[index] = earliest
        return known

    def repeat(self, record: Tracked, other: Tracked) -> str:
        """Return why the broker may have taken `record` for a duplicate of `other`.

        Power took the producer epoch of one of them, and it was assigned again.
        """
        if not (record.transaction and other.transaction):
            return ""
        return self.coordinator(0.0, record.acked_s)

    def regranted_s(self, record: Tracked, offset: int) -> float:
        """Return when the record's producer epoch was granted, if it was granted again after that.

        `NEVER` if no producer was given this epoch, or a lower one, after the transaction began.
        The end of a transaction grants the epoch of the next one (KIP-890).
        """
        evidence, txn = self._evidence, record.transaction
        batch = evidence.logs[record.topic_partition].batch_at(offset)
        if txn is None or batch is None:
            return NEVER
        if not any(
            event.at_s > txn.began_s
            and event.producer_id == batch.producer_id
            and event.producer_epoch <= batch.producer_epoch
            for event in evidence.initialized
        ):
            return NEVER
        ends = [
            min(other.ending_s, other.aborting_s)
            for other in evidence.transactions.values()
            if other.client == txn.client
        ]
        grants = [event.at_s for event in evidence.initialized if event.who == txn.client]
        return max((at_s for at_s in ends + grants if at_s <= txn.began_s), default=NEVER)

    def late(self, record: Tracked, offset: int) -> str:
        """Return why a record may stand behind its producer's next transaction.

        Power took the grant of its epoch, another one has the same epoch, and so the broker took
        what an earlier instance sent again.
        """
        granted_s = self.regranted_s(record, offset)
        if granted_s == NEVER:
            return ""
        return self.coordinator(granted_s, record.acked_s)

    def epoch_before(self, partition: TopicPartition, at_s: float) -> int | None:
        """Return the highest leader epoch that was observed up to then.

        Epochs begin at 0 again with a topic that is deleted and created again.
        """
        seen = [mark for mark in self._evidence.watermarks.get(partition, ()) if mark.at_s <= at_s]
        latest = [mark.leader_epoch for mark in seen if mark.topic_id == seen[-1].topic_id]
        return max(latest, default=None)

    def epoch_after(self, partition: TopicPartition, at_s: float) -> int | None:
        """Return the next observed leader epoch, if the same broker process lived until then.

        Records written by that time have no higher one.
        """
        for mark in self._evidence.watermarks.get(partition, ()):
            if mark.at_s >= at_s:
                died = [e.at_s for e in self._evidence.of(BrokerDied) if e.who == mark.who]
                is_one_life = not any(at_s <= died_s <= mark.at_s for died_s in died)
                return mark.leader_epoch if is_one_life else None
        return None

    def restarted_after(self, at_s: float) -> bool:
        """Return whether the brokers that faults of that time met started after that."""
        met = self._met_at(at_s)
        return bool(met) and all(self._next_start_s(at_s, {name}) < NEVER for name in met)

    def _next_start_s(self, at_s: float, brokers: Set[str]) -> float:
        later = (start_s for start_s, who in self._starts if start_s > at_s and who in brokers)
        return next(later, NEVER)

    def _election(
        self, from_s: float, until_s: float, partitions: tuple[TopicPartition | str, ...]
    ) -> str:
        if not self._evidence.promise.unclean_elections:
            return ""
        for partition in partitions:
            if not isinstance(partition, TopicPartition):
                return "unclean elections are allowed"
            before = self.epoch_before(partition, from_s)
            for mark in self._evidence.watermarks.get(partition, ()):
                is_between = from_s < mark.at_s <= until_s
                if is_between and (before is None or mark.leader_epoch > before):
                    return f"unclean elections are allowed; epoch {mark.leader_epoch} began"
        return ""


def _folders(faults: list[Fault], at_s: float) -> frozenset[str] | None:
    """Return the partition folders that the faults of that time name; None if they name none."""
    named = frozenset(
        folder
        for fault in faults
        if fault.at_s == at_s
        for folder in _FOLDER.findall(f"{fault.target} {fault.detail}")
    )
    return named or None


def _meets(folders: frozenset[str] | None, partitions: tuple[TopicPartition | str, ...]) -> bool:
    if folders is None or not partitions:
        return True
    for partition in partitions:
        if isinstance(partition, TopicPartition):
            if str(partition) in folders:
                return True
        elif any(folder.rpartition("-")[0] == partition for folder in folders):
            return True
    return False
