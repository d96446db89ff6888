"""Consumer groups (KIP-848) as text: each file in `consumer_group/` is a story as in `test_group`.

Members are told by the partitions of the topic `t` that they own. `beat` is a heartbeat: of a
member that joins it says everything, else what it owns; `quit` is its last one.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.group import events as e
from oncelog.group.config import GroupConfig
from oncelog.group.consumer.embedded import (
    NamedPartitions,
    Subscription,
    identified,
    read_assignment,
    write_assignment,
)
from oncelog.group.consumer.events import Beat, DescribeConsumerGroup, Quit
from oncelog.group.consumer.members import OwnedPartitions, Partitions
from oncelog.group.consumer.outcome import BeatReply, ConsumerGroupDescription
from oncelog.group.consumer.settings import ConsumerGroupConfig
from oncelog.group.records import ConsumerGroupRecord, GroupRecord
from oncelog.group.replies import SyncReply
from oncelog.protocol.codec import writer
from oncelog.protocol.records import consumer_group_log as log
from oncelog.protocol.wire import INT16
from tests.scenarios.test_group import FIELDS, Story, played
from tests.unit.group.consumer.world import FakeTopics, partitions, topic_id

FOLDER = Path(__file__).parent / "consumer_group"


def numbers(found: Partitions | OwnedPartitions) -> str:
    return "[" + " ".join(str(partition.partition) for partition in sorted(found)) + "]"


def owned_numbers(topics: tuple[log.OwnedPartitions, ...]) -> str:
    return "[" + " ".join(str(number) for topic in topics for number in topic.partitions) + "]"


def partition_set(text: str | None) -> Partitions | None:
    if text is None:
        return None
    return partitions("t", *(int(number) for number in text.split(",") if number))


class ConsumerStory(Story):
    """A story with members of the new protocol."""

    def __init__(self) -> None:
        super().__init__()
        consumer = ConsumerGroupConfig(assignment_interval_ms=0, max_size=3)
        self.c.config = GroupConfig(consumer=consumer)
        self.topics_are = FakeTopics({"t": 4})
        self.c.topics = self.topics_are
        self.c.restart()

    def classic_line(self, record: GroupRecord) -> str:
        if record.value is None:
            return f"classic group {record.group_id} tombstone"
        members = " ".join(member.member_id for member in record.value.members)
        return f"classic group {record.group_id} generation={record.value.generation} [{members}]"

    def consumer_line(self, record: ConsumerGroupRecord) -> str:
        name = f"{record.key.kind.name.lower()} {record.key.name}".rstrip()
        match record.value:
            case None:
                return f"{name} tombstone"
            case log.GroupEpochValue():
                return f"{name} {record.value.epoch}"
            case log.TargetAssignmentMetadataValue():
                return f"{name} {record.value.assignment_epoch}"
            case log.TargetAssignmentMemberValue():
                topics = record.value.topic_partitions
                return f"{name} {[number for topic in topics for number in topic.partitions]}"
            case log.CurrentAssignmentValue():
                value = record.value
                revoked = value.partitions_pending_revocation
                revokes = f" revokes {owned_numbers(revoked)}" if revoked else ""
                state = ("STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")[value.state]
                owned = owned_numbers(value.assigned_partitions)
                return f"{name} epoch={value.member_epoch} {state} {owned}{revokes}"
            case log.MemberMetadataValue():
                regex = record.value.subscribed_topic_regex
                return f"{name} {list(record.value.subscribed_topic_names)} {regex}".rstrip()
            case log.RegularExpressionValue():
                return f"{name} {list(record.value.topics)}"
        return f"{name} {record.value}"

    def told(self, result: object) -> str:
        match result:
            case SyncReply(ErrorCode.none):
                found = read_assignment(result.assignment)
                assert found is not None
                return f"assigned {numbers(identified(found.assigned_partitions, self.topics_are))}"
            case BeatReply(ErrorCode.none):
                assigned = "" if result.assigned is None else f" {numbers(result.assigned)}"
                return f"epoch={result.member_epoch}{assigned}"
            case BeatReply():
                reason = "" if result.message is None else f": {result.message}"
                return result.error.name.upper() + reason
            case ConsumerGroupDescription(ErrorCode.none):
                assert result.state is not None
                epochs = f"{result.group_epoch}/{result.assignment_epoch}"
                return f"{result.state.value} {epochs} {result.assignor}"
            case ConsumerGroupDescription():
                return f"{result.error.name.upper()}: {result.message}"
        return super().told(result)

    def beat(self, words: list[str], options: dict[str, str]) -> None:
        epoch = int(words[1])
        says_all = epoch == 0
        event = Beat(
            "g",
            words[0],
            epoch,
            "c",
            "/127.0.0.1",
            options.get("instance"),
            rebalance_timeout_ms=60_000 if says_all else -1,
            topic_names=frozenset(filter(None, options.get("topics", "t").split(",")))
            if says_all
            else None,
            topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            owned=frozenset() if says_all else partition_set(options.get("owned")),
        )
        self.submit(f"beat {words[0]}", event)

    def quit(self, words: list[str], options: dict[str, str]) -> None:
        event = Quit("g", words[0], int(options.get("epoch", -1)), options.get("instance"))
        self.submit(f"quit {words[0]}", event)

    def commit(self, words: list[str], options: dict[str, str]) -> None:
        offset, number = int(words[0]), int(options.get("partition", 0))
        wanted = (e.OffsetToCommit("t", number, offset, topic_id=topic_id("t")),)
        epoch, member = int(options.get("epoch", -1)), options.get("member", "")
        event: e.OffsetCommit | e.TxnOffsetCommit
        if "producer" in options:
            producer_id = int(options["producer"])
            event = e.TxnOffsetCommit("g", 5, "x", producer_id, 0, epoch, member, wanted)
        else:
            version = int(options.get("version", 9))
            event = e.OffsetCommit("g", version, epoch, member, wanted)
        self.submit(f"commit {offset}", event)

    def fetch(self, words: list[str], options: dict[str, str]) -> None:
        wanted = (e.OffsetToFetch("t", 0, topic_id("t")),)
        member, epoch = options.get("member"), int(options.get("epoch", -1))
        event = e.OffsetFetch("g", wanted, "stable" in words, member, epoch)
        self.submit("fetch", event)

    def sync(self, words: list[str], options: dict[str, str]) -> None:
        given = {
            member: write_assignment(partition_set(owned) or frozenset(), self.topics_are, b"")
            for member, owned in options.items()
            if member not in FIELDS
        }
        self.submit(f"sync {words[0]}", self.c.sync_event(words[0], int(words[1]), given))

    def beat_classic(self, words: list[str], options: dict[str, str]) -> None:
        super().heartbeat(words, options)

    def rejoin(self, words: list[str], options: dict[str, str]) -> None:
        """JoinGroup of a cooperative consumer, which says what it owns."""
        owned = partition_set(options.get("owned")) or frozenset()
        named = NamedPartitions(topic="t", partitions=tuple(sorted(tp.partition for tp in owned)))
        raw = bytearray(INT16.pack(1))
        value = Subscription(topics=("t",), owned_partitions=(named,))
        writer(Subscription, 1, flexible=False)(raw, value)
        event = self.c.join_event(words[0] if words else "", version=3)
        offered = (e.JoinProtocol(event.protocols[0].name, bytes(raw)),)
        self.submit(f"rejoin {words[0]}", replace(event, protocols=offered))

    def describe(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("describe", DescribeConsumerGroup("g"))

    def topic(self, words: list[str], options: dict[str, str]) -> None:
        counts = {name: int(count) for name, count in options.items()}
        self.topics_are = self.topics_are.with_counts(**counts)
        self.c.topics = self.topics_are


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_story_goes_as_told(path: Path) -> None:
    text = path.read_text()
    outcome = played(text, ConsumerStory())
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(outcome)
    assert outcome == path.read_text()
