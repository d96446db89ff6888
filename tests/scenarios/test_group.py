"""Consumer groups as text: each file in `group/` is a story of commands and their exact outcome.

A paragraph is a command, `----`, and what came of it: replies, and `log:` lines for what was
appended. Lines that begin with `#` tell the story. `REWRITE_SCENARIOS=1` writes the outcomes anew;
read the difference before you keep it.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.coordinator.event_processor import CoordinatorState
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.group import events as e
from oncelog.group.consumer.events import Beat, DescribeConsumerGroup, Quit
from oncelog.group.consumer.outcome import BeatReply, ConsumerGroupDescription
from oncelog.group.decision import GroupEvent
from oncelog.group.records import ConsumerGroupRecord, GroupRecord, OffsetRecord, decode
from oncelog.group.replies import (
    DeleteReply,
    DescribeReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    ListReply,
    OffsetCommitReply,
    OffsetDeleteReply,
    OffsetFetchReply,
    SyncReply,
)
from oncelog.group.store import GroupStore
from tests.scenarios.group_cells import NAMES, UNSERVED, cell_of, errors_of, kind_of
from tests.unit.group.context import T0, Context, Marker, Written, replayed, topic_deleted

FOLDER = Path(__file__).parent / "group"

FIELDS = {
    "group": "group_id",
    "instance": "group_instance_id",
    "kind": "protocol_type",
    "protocol": "protocol_name",
    "session": "session_timeout_ms",
    "version": "version",
}
"""Options that replace a field of a request that has it."""


def altered(event: GroupEvent, options: Mapping[str, str]) -> GroupEvent:
    """The request with the fields that a command's options name."""
    names = {field.name for field in fields(event)}
    given = {FIELDS[key]: text for key, text in options.items() if FIELDS.get(key) in names}
    numbers = ("version", "session_timeout_ms")
    changes: dict[str, Any] = {k: int(v) if k in numbers else v for k, v in given.items()}
    return replace(event, **changes)


class Story:
    """Carries out commands on a context and says what came of them."""

    def __init__(self) -> None:
        self.c = Context()
        self.answered: set[int] = set()
        self.names: dict[int, str] = {}
        self.logged = 0
        self.options: dict[str, str] = {}
        self.asked: dict[int, tuple[str, GroupEvent]] = {}
        self.cells: set[str] = set()
        """What was asked, of which kind of group, and how it was answered."""
        self.states: set[str] = set()

    def run(self, line: str) -> str:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.options = options
        lines = getattr(self, command)(plain, options) or []
        log = [f"log: {self.line(item)}" for item in self.c.log[self.logged :]]
        self.logged = len(self.c.log)
        replies = []
        for token in sorted(set(self.c.replies) - self.answered):
            self.answered.add(token)
            kind, event = self.asked[token]
            self.cells |= {
                cell_of(kind, event, error) for error in errors_of(self.c.replies[token])
            }
            replies.append(f"{self.names[token]}: {self.told(self.c.replies[token])}")
        self.states |= states_in(self.c.shard.store)
        return "\n".join(log + replies + lines) or "ok"

    def submit(self, name: str, event: GroupEvent) -> None:
        token, asked = self.c.next_token + 1, altered(event, self.options)
        is_served = self.c.processor.state is CoordinatorState.ACTIVE
        kind = kind_of(asked, self.c.shard.store) if is_served else UNSERVED
        self.names[token], self.asked[token] = name, (kind, asked)
        self.c.submit(asked)

    def line(self, item: Written | Marker) -> str:
        if isinstance(item, Marker):
            return f"marker producer={item.producer_id} commit={item.commit}"
        record = decode(item.record)
        assert record is not None
        if isinstance(record, OffsetRecord):
            offset = None if record.value is None else record.value.offset
            producer = "" if item.producer_id < 0 else f" producer={item.producer_id}"
            return f"offset {record.group_id} {record.partition} {offset}{producer}"
        if isinstance(record, ConsumerGroupRecord):
            return self.consumer_line(record)
        return self.classic_line(record)

    def classic_line(self, record: GroupRecord) -> str:
        if record.value is None:
            return f"group {record.group_id} tombstone"
        value = record.value
        members = " ".join(f"{m.member_id}={m.assignment.decode()}" for m in value.members)
        return f"group {record.group_id} generation={value.generation} [{members}]"

    def consumer_line(self, record: ConsumerGroupRecord) -> str:
        raise AssertionError(f"stories of consumer groups stand elsewhere: {record}")

    def told(self, result: object) -> str:
        return told(result)

    # Commands.

    def join(self, words: list[str], options: dict[str, str]) -> None:
        event = self.c.join_event(
            words[0] if words else "",
            client=options.get("client", "c"),
            instance=options.get("instance"),
            version=int(options.get("version", 5)),
            topics=tuple(options.get("topics", "t").split(",")),
            protocols=tuple(options.get("protocols", "range").split(",")),
        )
        self.submit(f"join {words[0] if words else '-'}", event)

    def sync(self, words: list[str], options: dict[str, str]) -> None:
        given = {key: value.encode() for key, value in options.items() if key not in FIELDS}
        self.submit(f"sync {words[0]}", self.c.sync_event(words[0], int(words[1]), given))

    def heartbeat(self, words: list[str], options: dict[str, str]) -> None:
        event = e.Heartbeat("g", int(words[1]), words[0], options.get("instance"))
        self.submit(f"heartbeat {words[0]}", event)

    def leave(self, words: list[str], options: dict[str, str]) -> None:
        named = [word.partition("@") for word in words]
        event = e.Leave("g", tuple(e.LeavingMember(m, i or None) for m, _, i in named))
        self.submit(f"leave {' '.join(words)}", event)

    def commit(self, words: list[str], options: dict[str, str]) -> None:
        member, generation = options.get("member", ""), int(options.get("generation", -1))
        offset = int(words[0])
        event: e.OffsetCommit | e.TxnOffsetCommit = self.c.commit_event(offset, member, generation)
        if "producer" in options:
            producer_id = int(options["producer"])
            event = self.c.txn_commit_event(offset, producer_id, member, generation)
        (wanted,) = event.offsets
        metadata = "m" * int(options.get("metadata", 0))
        wanted = wanted._replace(topic_id=topic_id(options), metadata=metadata)
        event = replace(event, offsets=(wanted,))
        self.submit(f"commit {offset}", event)

    def fetch(self, words: list[str], options: dict[str, str]) -> None:
        event = e.OffsetFetch(
            "g", (e.OffsetToFetch(*T0, topic_id(options)),), require_stable="stable" in words
        )
        self.submit("fetch", event)

    def delete(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("delete", e.DeleteGroup("g"))

    def delete_offset(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("delete_offset", e.OffsetDelete("g", (TopicPartition(words[0], 0),)))

    def describe_classic(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("describe_classic", e.DescribeGroup("g"))

    def list_groups(self, words: list[str], options: dict[str, str]) -> None:
        states = tuple(filter(None, options.get("states", "").split(",")))
        self.submit("list_groups", e.ListGroups(states, tuple(options.get("types", "").split())))

    def beat_new(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("beat_new", Beat("g", words[0], int(words[1]), "c", "/127.0.0.1"))

    def quit_new(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("quit_new", Quit("g", words[0], -1, None))

    def describe_new(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("describe_new", DescribeConsumerGroup("g"))

    def load(self, words: list[str], options: dict[str, str]) -> None:
        """The coordinator was started again, and still reads its log."""
        self.c.in_flight.clear()
        self.c.processor = replayed(self.c.log, self.c.config)

    def resign(self, words: list[str], options: dict[str, str]) -> None:
        """The partition is led elsewhere."""
        self.c.handle(self.c.processor.resign(self.c.now_ms))

    def every(self, words: list[str], options: dict[str, str]) -> None:
        """One request of each API, of a member "m"."""
        offset = e.OffsetToCommit("t", 0, 1)
        requests: tuple[GroupEvent, ...] = (
            self.c.join_event("m"),
            self.c.sync_event("m"),
            e.Heartbeat("g", 1, "m", None),
            e.Leave("g", (e.LeavingMember("m"),)),
            e.OffsetCommit("g", 9, 1, "m", (offset,)),
            e.TxnOffsetCommit("g", 5, "x", 7, 0, 1, "m", (offset,)),
            e.OffsetFetch("g", None, False),
            e.OffsetDelete("g", (T0,)),
            e.DescribeGroup("g"),
            e.ListGroups(),
            e.DeleteGroup("g"),
            Beat("g", "m", 1, "c", "/127.0.0.1"),
            Quit("g", "m", -1, None),
            DescribeConsumerGroup("g"),
        )
        for event in requests:
            self.submit(NAMES[type(event)], event)

    def delete_topic(self, words: list[str], options: dict[str, str]) -> None:
        self.c.submit_silently(topic_deleted(topic_id(options)))

    def marker(self, words: list[str], options: dict[str, str]) -> None:
        self.c.marker(int(words[0]), words[1] == "commit")

    def advance(self, words: list[str], options: dict[str, str]) -> None:
        self.c.advance(int(words[0]))

    def size_max(self, words: list[str], options: dict[str, str]) -> None:
        self.c.config = replace(self.c.config, max_size=int(words[0]))
        self.c.restart()

    def hold(self, words: list[str], options: dict[str, str]) -> None:
        self.c.hold = True

    def release(self, words: list[str], options: dict[str, str]) -> None:
        self.c.hold = False
        self.c.commit_all()

    def fail(self, words: list[str], options: dict[str, str]) -> None:
        self.logged = self.c.in_flight[0][1]
        self.c.fail(ErrorCode[words[0].lower()])

    def crash(self, words: list[str], options: dict[str, str]) -> None:
        self.c.restart()

    def group(self, words: list[str], options: dict[str, str]) -> list[str]:
        group = self.c.group()
        members = " ".join(group.members)
        return [f"{group.state.value} generation={group.generation_id} [{members}]"]


def states_in(store: GroupStore) -> set[str]:
    """The states of all groups, and of the members that follow a target."""
    found = {f"classic: {group.state.value}" for group in store.groups.values()}
    for group in store.consumer_groups.values():
        found.add(f"consumer: {group.state.value}")
        found |= {f"member: {member.state.name}" for member in group.members.values()}
    return found


def topic_id(options: dict[str, str]) -> UUID:
    return UUID(int=int(options.get("topic_id", 0)))


def told(result: object) -> str:
    match result:
        case DeleteReply():
            return result.error.name.upper()
        case JoinReply(ErrorCode.none):
            role = "leads" if result.leader == result.member_id else "follows " + result.leader
            members = " ".join(member.member_id for member in result.members)
            skip = " skip_assignment" if result.skip_assignment else ""
            return f"{result.member_id} generation={result.generation_id} {role} [{members}]{skip}"
        case JoinReply():
            return f"{result.error.name.upper()} {result.member_id}".rstrip()
        case SyncReply(ErrorCode.none):
            return f"assigned {result.assignment.decode()!r}"
        case SyncReply() | HeartbeatReply():
            return result.error.name.upper()
        case LeaveReply():
            errors = [member.error for member in result.members] or [result.error]
            return " ".join(error.name.upper() for error in errors)
        case ListReply():
            listed = [f"{g.group_id} {g.group_type} {g.state}" for g in result.groups]
            return f"{result.error.name.upper()} [{', '.join(listed)}]"
        case DescribeReply():
            reason = "" if result.message is None else f": {result.message}"
            return f"{result.error.name.upper()} {result.state}".rstrip() + reason
        case BeatReply() | ConsumerGroupDescription():
            reason = "" if result.message is None else f": {result.message}"
            return result.error.name.upper() + reason
        case OffsetCommitReply() | OffsetDeleteReply():
            if isinstance(result, OffsetDeleteReply) and result.error is not ErrorCode.none:
                return result.error.name.upper()
            return " ".join(partition.error.name.upper() for partition in result.partitions)
        case OffsetFetchReply():
            if result.error is not ErrorCode.none:
                return result.error.name.upper()
            if not result.partitions:
                return "NONE"
            found = result.partitions[0]
            return f"{found.offset} {found.error.name.upper()}"
    raise AssertionError(result)


def played(text: str, story: Story) -> str:
    out = []
    for paragraph in text.strip().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line.startswith("#")]
        rest = [line for line in paragraph.split("\n") if not line.startswith("#")]
        if rest:
            lines += [rest[0], "----", story.run(rest[0])]
        out.append("\n".join(lines))
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_story_goes_as_told(path: Path) -> None:
    text = path.read_text()
    outcome = played(text, Story())
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(outcome)
    assert outcome == path.read_text()
