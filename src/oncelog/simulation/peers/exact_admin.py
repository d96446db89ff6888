"""Judges every answer that one administrator gets about topics that no other client touches.

It creates, deletes, grows and configures topics in all versions, several in one request, valid and
invalid ones, for validation only too, and works out from a naive model what each answer has to be
(`exact_topics`). Between changes it asks for all that there is to know of them
(`exact_descriptions`). What was refused has changed nothing, and a restart of the broker neither.

A topic whose change got no answer is changed no more, and may be as before or as after it.

Parameters: `strict` (False), `pace_ms` (200), those of `wire`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from oncelog.core.config import ConfigSource
from oncelog.core.config_definition import format_value
from oncelog.core.config_keys import TOPIC_KEYS
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import create_partitions, create_topics, delete_topics
from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_asking import EXACT_DEFAULTS, NotSentError, text_of
from oncelog.simulation.peers.exact_configs import (
    BAD_CONFIGS,
    GOOD_CONFIGS,
    ConfigChanger,
)
from oncelog.simulation.peers.exact_topics import KnownTopic, NewTopicWish
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.wire import LostError, PeerWire

__all__ = ["run"]

_NAMES_COUNT: Final = 4
_PARTITIONS_COUNT_MAX: Final = 10
_DOUBTFUL_COUNT_MAX: Final = 8
_TIMEOUT_MS: Final = 30_000
_BAD_NAMES: Final = ("", ".", "..", "a name", "a/b", "n" * 250)


async def run(context: ClientContext) -> None:
    """Change topics and ask about them until told to stop; describe all; delete what is left."""
    administrator = ExactAdmin(context.with_defaults(EXACT_DEFAULTS))
    attempt = 0
    while not await administrator.is_ready():
        await context.back_off(attempt)
        attempt += 1
    while not context.stopping():
        await context.pause(0, 2 * float(context.get("pace_ms", 200)))
        await administrator.act()
    while not await administrator.has_described_everything():
        await context.back_off(attempt)
        attempt += 1
    await administrator.delete_everything()
    administrator.close()
    context.progress("settled")


class ExactAdmin(ConfigChanger):
    """One administrator; a later process of the same client has topics of its own."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context, PeerWire(context, JAVA))
        self._names = [f"{self.prefix}{number}" for number in range(_NAMES_COUNT)]
        self._names += [f"{self.prefix}a.b", f"{self.prefix}a_b"]
        self._fresh = len(self._names)
        self._ids_seen: set[object] = set()

    async def act(self) -> None:
        """Do or ask something; where it has changed something, look at the whole."""
        change = self.context.rng.choice(
            (
                self._create,
                self._create,
                self._delete,
                self._grow,
                self.configure,
                self.configure,
                self.configure_group,
                self.describe_something,
                self.describe_something,
                self.describe_something,
                self.describe_something,
            )
        )
        try:
            if change != self.describe_something and self._is_tired():
                return
            await change()
            if change != self.describe_something:
                await self.look_at_topics()
        except LostError:
            return

    async def delete_everything(self) -> None:
        """Delete the topics that are there for certain, so that the end of the run is short."""
        names = self.model.names()
        if names:
            asked = [delete_topics.DeleteTopicState(name=name) for name in names]
            try:
                await self._delete_these(asked)
                await self.look_at_topics()
            except LostError:
                return

    def _is_tired(self) -> bool:
        return len(self.model.doubtful) >= _DOUBTFUL_COUNT_MAX

    def _a_name(self) -> str:
        """Return a name of ours, whether there is a topic of that name or not."""
        usable = [name for name in self._names if not self.model.is_doubtful(name)]
        if len(usable) < _NAMES_COUNT:
            self._names.append(f"{self.prefix}{self._fresh}")
            self._fresh += 1
            usable = self._names[-1:]
        return self.context.rng.choice(usable)

    def a_name_for_changes(self) -> str:
        """Return a name of ours, or one that no topic can have."""
        chance = self.context.chance
        return self.context.rng.choice(_BAD_NAMES) if chance(0.1) else self._a_name()

    # --- creation ---------------------------------------------------------------------

    async def _create(self) -> None:
        rng = self.context.rng
        wishes = [self._a_wish() for _ in range(rng.choice((1, 1, 2, 3)))]
        validates = self.context.chance(0.2)
        request = create_topics.CreateTopicsRequest(
            topics=tuple(_creatable(wish) for wish in wishes),
            timeout_ms=_TIMEOUT_MS,
            validate_only=validates,
        )
        wanted = list(self.model.creations(wishes))
        try:
            answer = await self.ask(ApiKey.CREATE_TOPICS, request)
        except NotSentError:
            raise
        except LostError:
            for _, _, topic in wanted:
                if topic is not None and not validates:
                    self.model.doubt(topic.name, topic)
            raise
        told = sorted(answer.response.topics, key=lambda each: each.name)
        ids = {each.name: each.topic_id for each in told}
        results = []
        for wish, error, topic in sorted(wanted, key=lambda each: each[0].name):
            topic_id = None if validates or topic is None else ids.get(wish.name)
            results.append(self._created(wish.name, error, topic, topic_id))
            if topic is not None and not validates:
                self.model.topics[wish.name] = replace(topic, topic_id=topic_id)
                self._is_fresh(topic_id)
        sorted_answer = answer._replace(response=replace(answer.response, topics=tuple(told)))
        self.compare(sorted_answer, create_topics.CreateTopicsResponse(topics=tuple(results)))
        if answer.version >= 7 and not validates:
            self.expect(
                all((each.topic_id is None) is bool(each.error_code) for each in told),
                lambda: f"CreateTopics v{answer.version} gave the ids {ids}",
            )

    def _is_fresh(self, topic_id: object) -> None:
        if topic_id is not None:
            self.expect(topic_id not in self._ids_seen, lambda: f"the id {topic_id} came twice")
            self._ids_seen.add(topic_id)

    def _a_wish(self) -> NewTopicWish:
        rng, chance = self.context.rng, self.context.chance
        partitions, factor = rng.choice((1, 1, 2, 3, -1)), rng.choice((1, 1, -1))
        if sum(topic.partitions for topic in self.model.topics.values()) >= _PARTITIONS_COUNT_MAX:
            partitions = 0
        assignment: dict[int, list[int]] = {}
        kind = rng.random()
        if kind < 0.1 and partitions != 0:
            partitions, factor = rng.choice(((0, 1), (-3, 1), (200_000, 1), (1, 2), (1, 0)))
        elif kind < 0.2 and partitions != 0:
            assignment = {index: [self.node] for index in range(rng.randint(1, 2))}
            partitions, factor = rng.choice(((-1, -1), (len(assignment), -1), (-1, -1), (-1, 1)))
            if chance(0.4):
                assignment |= rng.choice(
                    ({3: [self.node]}, {0: [self.node + 1]}, {0: []}, {0: [self.node] * 2})
                )
        config: dict[str, str | None] = dict(rng.sample(GOOD_CONFIGS, rng.choice((0, 0, 1, 2))))
        if chance(0.1):
            config |= dict([rng.choice(BAD_CONFIGS)])
        return NewTopicWish(self.a_name_for_changes(), partitions, factor, assignment, config)

    def _created(
        self, name: str, error: ErrorCode, topic: KnownTopic | None, topic_id: object
    ) -> create_topics.CreatableTopicResult:
        if topic is None:
            return create_topics.CreatableTopicResult(
                name=name, error_code=error, error_message=text_of(error)
            )
        configs = []
        for key in sorted(TOPIC_KEYS):
            sources = self.settings.topic_synonyms(topic.config, key)
            source = sources[0].source if sources else ConfigSource.DEFAULT
            value = format_value(self.settings.topic_value(topic.config, key))
            configs.append(
                create_topics.CreatableTopicConfigs(
                    name=key, value=value, config_source=source.value
                )
            )
        return create_topics.CreatableTopicResult(
            name=name,
            topic_id=topic_id,  # type: ignore[arg-type]
            num_partitions=topic.partitions,
            replication_factor=1,
            configs=tuple(configs),
        )

    # --- deletion ---------------------------------------------------------------------

    async def _delete(self) -> None:
        rng = self.context.rng
        asked = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            topic = self.model.topics.get(name := self.a_name_for_changes())
            by_id = self.context.chance(0.3)
            if by_id and topic is not None and topic.topic_id is not None:
                asked.append(delete_topics.DeleteTopicState(topic_id=topic.topic_id))
            elif by_id and self.context.chance(0.3):
                asked.append(delete_topics.DeleteTopicState(topic_id=self.unknown_id()))
            else:
                asked.append(delete_topics.DeleteTopicState(name=name))
        await self._delete_these(asked)

    async def _delete_these(self, asked: Sequence[delete_topics.DeleteTopicState]) -> None:
        if self.lacks_ids():
            await self.look_at_topics()
        by_id = {topic.topic_id: topic for topic in self.model.topics.values()}
        found = [
            by_id.get(each.topic_id) if each.name is None else self.model.topics.get(each.name)
            for each in asked
        ]
        request = delete_topics.DeleteTopicsRequest(topics=tuple(asked), timeout_ms=_TIMEOUT_MS)
        least = 6 if any(each.name is None for each in asked) else 0
        try:
            answer = await self.ask(ApiKey.DELETE_TOPICS, request, least=least)
        except NotSentError:
            raise
        except LostError:
            for name in {topic.name for topic in found if topic is not None}:
                self.model.doubt(name, None)
            raise
        results = []
        for each, topic in zip(asked, found, strict=True):
            error = ErrorCode.none
            if topic is None:
                error = ErrorCode.unknown_topic_or_partition
                error = ErrorCode.unknown_topic_id if each.name is None else error
            elif found.count(topic) > 1:
                error = ErrorCode.invalid_request
            elif self.model.topics.pop(topic.name, None) is not None:
                self.deleted_ids.append(topic.topic_id)
            results.append(
                delete_topics.DeletableTopicResult(
                    name=each.name if topic is None else topic.name,
                    topic_id=each.topic_id if topic is None else topic.topic_id,
                    error_code=error,
                    error_message=text_of(error),
                )
            )
        self.compare(answer, delete_topics.DeleteTopicsResponse(responses=tuple(results)))

    # --- more partitions --------------------------------------------------------------

    async def _grow(self) -> None:
        rng = self.context.rng
        validates = self.context.chance(0.2)
        asked = {}
        for _ in range(rng.choice((1, 1, 2))):
            name = self.a_name_for_changes()
            topic = self.model.topics.get(name)
            present = 1 if topic is None else topic.partitions
            count = present + rng.choice((1, 1, 2, 0, -1, 200_000))
            assignments: list[list[int]] | None = None
            if self.context.chance(0.3) and count < present + 5:
                assignments = [[self.node]] * (count - present)
                if self.context.chance(0.4):
                    odd = rng.choice(([self.node + 1], [], [self.node] * 2, None))
                    rows = [*assignments, [self.node]]
                    assignments = rows if odd is None else [odd] * (count - present)
            asked[name] = (count, assignments)
        topics = [
            create_partitions.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if rows is None
                else tuple(
                    create_partitions.CreatePartitionsAssignment(broker_ids=tuple(row))
                    for row in rows
                ),
            )
            for name, (count, rows) in asked.items()
        ]
        twice = topics[0].name if self.context.chance(0.1) else None
        if twice is not None:
            topics.append(topics[0])
        request = create_partitions.CreatePartitionsRequest(
            topics=tuple(topics), timeout_ms=_TIMEOUT_MS, validate_only=validates
        )
        errors = {
            name: ErrorCode.invalid_request
            if name == twice
            else self.model.growth(name, count, rows)
            for name, (count, rows) in asked.items()
        }
        grown = {
            name: replace(self.model.topics[name], partitions=asked[name][0])
            for name, error in errors.items()
            if error is ErrorCode.none and not validates
        }
        answer = await self.change(ApiKey.CREATE_PARTITIONS, request, grown)
        told = sorted(answer.response.results, key=lambda each: each.name)
        wanted = [
            create_partitions.CreatePartitionsTopicResult(
                name=name, error_code=error, error_message=text_of(error)
            )
            for name, error in sorted(errors.items())
        ]
        self.compare(
            answer._replace(response=replace(answer.response, results=tuple(told))),
            create_partitions.CreatePartitionsResponse(results=tuple(wanted)),
        )


def _creatable(wish: NewTopicWish) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=wish.name,
        num_partitions=wish.partitions,
        replication_factor=wish.factor,
        assignments=tuple(
            create_topics.CreatableReplicaAssignment(
                partition_index=index, broker_ids=tuple(replicas)
            )
            for index, replicas in wish.assignment.items()
        ),
        configs=tuple(
            create_topics.CreatableTopicConfig(name=key, value=value)
            for key, value in wish.config.items()
        ),
    )
