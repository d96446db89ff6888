"""Consumer groups as text: each file in `group/` is a story of commands and their exact outcome.

A paragraph is a command, `----`, and what came of it: replies, and `log:` lines for what was
appended. Lines that begin with `#` tell the story. `REWRITE_SCENARIOS=1` writes the outcomes anew;
read the difference before you keep it.
"""

import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.coordinator import RecordContext
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset
from oncelog.group import events as e
from oncelog.group.decision import GroupEvent
from oncelog.group.records import ConsumerGroupRecord, GroupRecord, OffsetRecord, decode
from oncelog.group.results import (
    DeleteResult,
    HeartbeatResult,
    JoinResult,
    LeaveResult,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
    SyncResult,
)
from tests.unit.group.context import T0, Context, Marker, Written

FOLDER = Path(__file__).parent / "group"


class Story:
    """Carries out commands on a context and says what came of them."""

    def __init__(self) -> None:
        self.c = Context()
        self.answered: set[int] = set()
        self.names: dict[int, str] = {}
        self.logged = 0

    def run(self, line: str) -> str:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        lines = getattr(self, command)(plain, options) or []
        log = [f"log: {self.line(item)}" for item in self.c.log[self.logged :]]
        self.logged = len(self.c.log)
        replies = []
        for token in sorted(set(self.c.replies) - self.answered):
            self.answered.add(token)
            replies.append(f"{self.names[token]}: {self.told(self.c.replies[token])}")
        return "\n".join(log + replies + lines) or "ok"

    def submit(self, name: str, event: GroupEvent) -> None:
        self.names[self.c.next_token + 1] = name
        self.c.submit(event)

    def line(self, item: Written | Marker) -> str:
        if isinstance(item, Marker):
            return f"marker producer={item.producer_id} commit={item.commit}"
        record = decode(item.record, RecordContext(Offset(0), 0))
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
        )
        self.submit(f"join {words[0] if words else '-'}", event)

    def sync(self, words: list[str], options: dict[str, str]) -> None:
        given = {member: assignment.encode() for member, assignment in options.items()}
        self.submit(f"sync {words[0]}", self.c.sync_event(words[0], int(words[1]), given))

    def heartbeat(self, words: list[str], options: dict[str, str]) -> None:
        event = e.Heartbeat("g", int(words[1]), words[0], options.get("instance"))
        self.submit(f"heartbeat {words[0]}", event)

    def leave(self, words: list[str], options: dict[str, str]) -> None:
        event = e.Leave("g", tuple(e.LeavingMember(word) for word in words))
        self.submit(f"leave {' '.join(words)}", event)

    def commit(self, words: list[str], options: dict[str, str]) -> None:
        member, generation = options.get("member", ""), int(options.get("generation", -1))
        offset = int(words[0])
        event: e.OffsetCommit | e.TxnOffsetCommit = self.c.commit_event(offset, member, generation)
        if "producer" in options:
            producer_id = int(options["producer"])
            event = self.c.txn_commit_event(offset, producer_id, member, generation)
        (wanted,) = event.offsets
        event = replace(event, offsets=(wanted._replace(topic_id=topic_id(options)),))
        self.submit(f"commit {offset}", event)

    def fetch(self, words: list[str], options: dict[str, str]) -> None:
        event = e.OffsetFetch(
            "g", (e.OffsetToFetch(*T0, topic_id(options)),), require_stable="stable" in words
        )
        self.submit("fetch", event)

    def delete_topic(self, words: list[str], options: dict[str, str]) -> None:
        self.c.submit_silently(e.TopicDeleted("t", topic_id(options)))

    def topics(self, words: list[str], options: dict[str, str]) -> None:
        known = {name: UUID(int=int(number)) for name, number in options.items()}
        self.c.submit_silently(e.TopicsKnown(known))

    def marker(self, words: list[str], options: dict[str, str]) -> None:
        self.c.marker(int(words[0]), words[1] == "commit")

    def advance(self, words: list[str], options: dict[str, str]) -> None:
        self.c.advance(int(words[0]))

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


def topic_id(options: dict[str, str]) -> UUID:
    return UUID(int=int(options.get("topic_id", 0)))


def told(result: object) -> str:
    match result:
        case DeleteResult():
            return result.error.name.upper()
        case JoinResult(ErrorCode.none):
            role = "leads" if result.leader == result.member_id else "follows " + result.leader
            members = " ".join(member.member_id for member in result.members)
            skip = " skip_assignment" if result.skip_assignment else ""
            return f"{result.member_id} generation={result.generation_id} {role} [{members}]{skip}"
        case JoinResult():
            return f"{result.error.name.upper()} {result.member_id}".rstrip()
        case SyncResult(ErrorCode.none):
            return f"assigned {result.assignment.decode()!r}"
        case SyncResult() | HeartbeatResult():
            return result.error.name.upper()
        case LeaveResult():
            return " ".join(member.error.name.upper() for member in result.members)
        case OffsetCommitResult() | OffsetDeleteResult():
            return " ".join(partition.error.name.upper() for partition in result.partitions)
        case OffsetFetchResult():
            if result.error is not ErrorCode.none:
                return result.error.name.upper()
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
