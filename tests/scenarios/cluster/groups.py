"""What members of groups ask, in both protocols, and what a group has committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.protocol.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from oncelog.protocol.messages import consumer_group_heartbeat as consumer
from oncelog.protocol.messages import join_group, offset_fetch, sync_group
from tests.scenarios.wire.stage import Command, Identity, Scene, Stage, partition_of, told
from tests.unit.broker.apis.producing import GROUP, ID

TOPIC = "t"
PROTOCOL = "cooperative-sticky"
SESSION_MS = 6_000
LEAVES_STATIC = -2
"""The member epoch of a static member that leaves, and may return."""
NAMES = UUID(int=1)


@dataclass
class Membership:
    """What a member was told last. `generation` is its epoch under the consumer protocol."""

    member_id: str = ""
    generation: int = 0
    instance: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """Under the classic protocol."""
    assigned: tuple[consumer.ConsumerGroupHeartbeatTopicPartitions, ...] = ()

    def forget_if(self, error: ErrorCode) -> None:
        """Join without an id next time, as clients do that are unknown."""
        if error is ErrorCode.unknown_member_id:
            self.member_id = ""


class GroupVerbs(Stage):
    """The verbs of `tests.scenarios.wire.stage`, and those of groups."""

    def __init__(self, scene: Scene, now_ms: Callable[[], int]) -> None:
        super().__init__(scene, now_ms)
        self._members: dict[str, Membership] = {}

    async def carry_out(self, identity: Identity, command: Command) -> list[str]:
        """What comes of one command of a client."""
        member = self._members.setdefault(command.name, Membership())
        if "member" in command.options:
            named = self._members[command.options["member"]]
            known = {"member": named.member_id, "generation": str(named.generation)}
            command = replace(
                command, options={**known, **command.options, "member": named.member_id}
            )
        match command.verb:
            case "join":
                line = await self._join(identity.client, member, command)
            case "sync":
                line = await self._sync(identity.client, member, command)
            case "beat":
                line = await self._beat(identity.client, member)
            case "consume":
                line = await self._consume(identity.client, member, command)
            case "offset":
                line = await self._offset(identity.client)
            case "describe":
                line = await self._describe(identity.client, command)
            case _:
                return await super().carry_out(identity, command)
        return [line]

    async def _join(self, client: Any, member: Membership, command: Command) -> str:
        """JoinGroup; again with the id that the coordinator gives, where it asks for that."""
        member.instance = command.options.get("as", member.instance)
        subscription = MemberSubscription((TOPIC,), member.owned, member.generation)
        protocol = join_group.JoinGroupRequestProtocol(
            name=PROTOCOL, metadata=encode_subscription(subscription)
        )
        while True:
            answer = await client.ask(
                ApiKey.JOIN_GROUP,
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=member.member_id,
                group_instance_id=member.instance,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            member.member_id = answer.member_id or member.member_id
            if answer.error_code is not ErrorCode.member_id_required:
                break
        member.forget_if(answer.error_code)
        member.generation = answer.generation_id
        names = sorted(self._name(each.member_id) for each in answer.members)
        leads = f" leads {' '.join(names)}" if names else ""
        return told(answer.error_code, f"generation={answer.generation_id}{leads}")

    async def _sync(self, client: Any, member: Membership, command: Command) -> str:
        """SyncGroup; a leader names what each member gets."""
        answer = await client.ask(
            ApiKey.SYNC_GROUP,
            group_id=GROUP,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=tuple(
                sync_group.SyncGroupRequestAssignment(
                    member_id=self._members[name].member_id,
                    assignment=encode_assignment(map(partition_of, what.split(","))),
                )
                for name, what in command.options.items()
                if name in self._members
            ),
        )
        member.forget_if(answer.error_code)
        member.owned = decode_assignment(answer.assignment).partitions
        return told(answer.error_code, " ".join(map(str, member.owned)))

    async def _beat(self, client: Any, member: Membership) -> str:
        answer = await client.ask(
            ApiKey.HEARTBEAT,
            group_id=GROUP,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )
        return told(answer.error_code, f"generation={member.generation}")

    async def _consume(self, client: Any, member: Membership, command: Command) -> str:
        """A heartbeat of the consumer protocol, from who owns what it was assigned last."""
        member.instance = command.options.get("as", member.instance)
        if not member.member_id:
            member.member_id = str(uuid5(NAMES, command.name))
        joins, keeps = member.generation == 0, "keeps" in command.words
        if "leaves" in command.words:
            member.generation = LEAVES_STATIC
        answer = await client.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            group_id=GROUP,
            member_id=member.member_id,
            member_epoch=member.generation,
            instance_id=member.instance,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=(TOPIC,) if joins else None,
            topic_partitions=None if keeps else () if joins else member.assigned,
        )
        if answer.error_code is not ErrorCode.none:
            return told(answer.error_code)
        member.generation = answer.member_epoch
        if answer.assignment is not None:
            member.assigned = answer.assignment.topic_partitions
        numbers = sorted(number for each in member.assigned for number in each.partitions)
        owned = "".join(f" {TOPIC}-{number}" for number in numbers)
        return told(answer.error_code, f"epoch={answer.member_epoch}{owned}")

    async def _offset(self, client: Any) -> str:
        """The group's offset of the partition t-0, with require_stable."""
        topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,))
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        answer = await client.ask(ApiKey.OFFSET_FETCH, 9, groups=(wanted,), require_stable=True)
        (group,) = answer.groups
        if group.error_code is not ErrorCode.none:
            return told(group.error_code)
        found = group.topics[0].partitions[0]
        return told(found.error_code, str(found.committed_offset))

    async def _describe(self, client: Any, command: Command) -> str:
        """The state of a transactional id."""
        wanted = (command.options.get("id", ID),)
        answer = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=wanted)
        (found,) = answer.transaction_states
        return told(found.error_code, f"{found.transaction_state} epoch={found.producer_epoch}")

    def _name(self, member_id: str) -> str:
        """The client whose member id it is."""
        found = (name for name, each in self._members.items() if each.member_id == member_id)
        return next(found, "?")
