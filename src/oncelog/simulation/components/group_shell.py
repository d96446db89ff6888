"""Runs one shard of the group coordinator over a log that is a list, in a time of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never
from uuid import UUID

from oncelog.coordinator import CoordinatorRecord, EventProcessor, Output, RecordContext
from oncelog.coordinator.metadata import CoordinatorMetadata, Topic
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset
from oncelog.group.config import GroupConfig
from oncelog.group.decision import GroupEvent, GroupReply
from oncelog.group.shard import GroupCoordinatorShard

__all__ = ["GroupShell", "SimulatedTopics"]


class SimulatedTopics:
    """Topics by name; each change is a revision."""

    def __init__(self) -> None:
        self.revision = 0
        self.topics: dict[str, Topic] = {}

    def put(self, name: str, count: int) -> None:
        """Create a topic, or give it more partitions."""
        self.revision += 1
        known = self.topics.get(name)
        topic_id = UUID(int=self.revision) if known is None else known.topic_id
        self.topics[name] = Topic(name, topic_id, count)

    def remove(self, name: str) -> None:
        """Delete a topic."""
        self.revision += 1
        del self.topics[name]

    def names(self) -> list[str]:
        """See `Topics`."""
        return list(self.topics)

    def find(self, name: str) -> Topic | None:
        """See `Topics`."""
        return self.topics.get(name)

    def find_id(self, topic_id: UUID) -> Topic | None:
        """See `Topics`."""
        found = (topic for topic in self.topics.values() if topic.topic_id == topic_id)
        return next(found, None)


class GroupShell:
    """A shard on a processor. Each append is committed at once, or fails: `fails`."""

    def __init__(
        self,
        config: GroupConfig,
        topics: SimulatedTopics,
        make: Callable[..., GroupCoordinatorShard] = GroupCoordinatorShard,
    ) -> None:
        self.topics = topics
        self.now_ms = 1_700_000_000_000
        self.fails: ErrorCode | None = None
        self._config = config
        self._make = make
        self._log: list[tuple[CoordinatorRecord, int]] = []
        self._replies: dict[object, GroupReply] = {}
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """Load the log: as a restarted broker does."""
        self.shard = self._make(self._config)
        self._processor: EventProcessor[GroupEvent, GroupReply, Never] = EventProcessor(
            self.shard, CoordinatorMetadata(self.topics)
        )
        for offset, (record, timestamp_ms) in enumerate(self._log):
            self._processor.replay(record, RecordContext(Offset(offset), timestamp_ms))
        self._carry_out(self._processor.activate(self.now_ms))

    def ask(self, event: GroupEvent) -> GroupReply:
        """Return the answer to a request."""
        self._count += 1
        self._processor.metadata = CoordinatorMetadata(self.topics)
        self._carry_out(self._processor.submit(event, self._count, self.now_ms))
        self._run_due()
        return self._replies.pop(self._count)

    def pass_time(self, until_ms: int) -> None:
        """Let time pass, and do whatever falls due meanwhile."""
        while (due_ms := self._processor.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._carry_out(self._processor.tick(self.now_ms))
        self.now_ms = max(self.now_ms, until_ms)

    def _run_due(self) -> None:
        due_ms = self._processor.next_deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self._carry_out(self._processor.tick(self.now_ms))

    def _carry_out(self, output: Output[GroupReply, Never]) -> None:
        todo = [output]
        while todo:
            output = todo.pop(0)
            self._replies.update((reply.token, reply.value) for reply in output.replies)
            for append in output.appends:
                if self.fails is not None:
                    failed = self._processor.append_failed(
                        append.append_id, self.fails, self.now_ms
                    )
                    todo.append(failed)
                    continue
                base = Offset(len(self._log))
                # A load has the bytes only.
                read = (CoordinatorRecord(each.key, each.value) for each in append.records)
                self._log += ((record, append.timestamp_ms) for record in read)
                todo.append(self._processor.committed(append.append_id, base, self.now_ms))
