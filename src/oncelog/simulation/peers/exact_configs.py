"""Changes of configs by an administrator whose answers are judged: topics, groups and brokers.

Parameters: those of `exact_asking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.core.config_definition import ConfigError, format_value
from oncelog.core.errors import ErrorCode
from oncelog.core.group_keys import GROUP_KEYS, check_group_overrides, group_value
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import alter_configs, incremental_alter_configs
from oncelog.simulation.peers.exact_asking import ExactAnswer, NotSentError, text_of
from oncelog.simulation.peers.exact_descriptions import BROKER, GROUP, TOPIC, Descriptions
from oncelog.simulation.peers.exact_topics import KnownTopic
from oncelog.simulation.peers.wire import LostError

__all__ = ["BAD_CONFIGS", "GOOD_CONFIGS", "ConfigChanger"]

Entry = tuple[str, int, str | None]
"""A key, an operation (0 set, 1 delete, 2 append, 3 subtract) and a value."""

GOOD_CONFIGS: Final = (
    ("retention.ms", "86400000"),
    ("segment.bytes", "2097152"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("max.message.bytes", "70000"),
    ("message.timestamp.type", "LogAppendTime"),
)
BAD_CONFIGS: Final = (
    ("no.such.key", "1"),
    ("retention.ms", "soon"),
    ("segment.bytes", "1"),
    ("cleanup.policy", "burn"),
    ("max.message.bytes", None),
)
_ODD_OPERATION: Final = 9
_ODD_RESOURCE: Final = 99
_GROUP_KEYS: Final = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")


class ConfigChanger(Descriptions):
    """Alters configs in both ways, valid and invalid, and knows what must come of it."""

    def a_name_for_changes(self) -> str:
        """Return a topic's name, of one that is there or not."""
        raise NotImplementedError

    async def configure(self) -> None:
        """Alter the configs of one to three resources in one request."""
        rng = self.context.rng
        replaces, validates = self.context.chance(0.4), self.context.chance(0.2)
        asked: list[tuple[int, str, list[Entry]]] = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            asked.append(self._a_resource(replaces))
        places = [(kind, name) for kind, name, _ in asked]
        wanted: list[ErrorCode] = []
        changed: dict[str, KnownTopic] = {}
        for kind, name, entries in asked:
            if places.count((kind, name)) > 1:
                wanted.append(ErrorCode.invalid_request)
            elif kind == TOPIC:
                error, config = self.model.configured(name, entries, replaces=replaces)
                wanted.append(error)
                if error is ErrorCode.none and not validates:
                    changed[name] = replace(self.model.topics[name], config=config)
            else:
                wanted.append(self._of_a_broker(kind, name, entries))
        await self._alter(asked, wanted, changed, replaces=replaces, validates=validates)

    def _a_resource(self, replaces: bool) -> tuple[int, str, list[Entry]]:
        rng, chance = self.context.rng, self.context.chance
        entries: list[Entry] = []
        for key, value in rng.sample(GOOD_CONFIGS, rng.choice((0, 1, 1, 2))):
            operation = 0 if replaces else rng.choice((0, 0, 1))
            entries.append((key, operation, None if operation and chance(0.5) else value))
        if not replaces and chance(0.3):
            policy = rng.choice(("compact", "delete"))
            entries.append(("cleanup.policy", rng.choice((2, 3)), policy))
        if chance(0.15):
            entries.append((*_with_set(rng.choice(BAD_CONFIGS)),))
        if not replaces and chance(0.05):
            entries.append(
                rng.choice((("retention.ms", _ODD_OPERATION, "1"), ("retention.ms", 2, "1")))
            )
        kind = rng.choices((TOPIC, BROKER, _ODD_RESOURCE), (20, 2, 1))[0]
        if kind == BROKER:
            name = rng.choice((str(self.node), str(self.node), "", str(self.node + 1), "x"))
            return kind, name, entries
        return kind, self.a_name_for_changes(), entries

    def _of_a_broker(self, kind: int, name: str, entries: Sequence[Entry]) -> ErrorCode:
        """Nothing of a broker can be changed; to remove what it has not changes nothing."""
        keys = [key for key, _, _ in entries]
        is_sound = len(set(keys)) == len(keys) and all(o == 1 for _, o, _ in entries)
        is_ours = kind == BROKER and name in ("", str(self.node))
        return ErrorCode.none if is_sound and is_ours else ErrorCode.invalid_request

    async def _alter(
        self,
        asked: Sequence[tuple[int, str, Sequence[Entry]]],
        wanted: Sequence[ErrorCode],
        changed: Mapping[str, KnownTopic],
        *,
        replaces: bool,
        validates: bool,
    ) -> None:
        told = [(kind, name, error) for (kind, name, _), error in zip(asked, wanted, strict=True)]
        if replaces:
            await self._replace(asked, told, changed, validates)
            return
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=tuple(
                incremental_alter_configs.IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=tuple(
                        incremental_alter_configs.IncrementalAlterableConfig(
                            name=key, config_operation=operation, value=value
                        )
                        for key, operation, value in entries
                    ),
                )
                for kind, name, entries in asked
            ),
            validate_only=validates,
        )
        answer = await self.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, changed)
        responses = [
            incremental_alter_configs.IncrementalAlterConfigsResourceResponse(
                error_code=error,
                error_message=text_of(error),
                resource_type=kind,
                resource_name=name,
            )
            for kind, name, error in told
        ]
        self.compare(
            answer,
            incremental_alter_configs.IncrementalAlterConfigsResponse(responses=tuple(responses)),
        )

    async def _replace(
        self,
        asked: Sequence[tuple[int, str, Sequence[Entry]]],
        told: Sequence[tuple[int, str, ErrorCode]],
        changed: Mapping[str, KnownTopic],
        validates: bool,
    ) -> None:
        request = alter_configs.AlterConfigsRequest(
            resources=tuple(
                alter_configs.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=tuple(
                        alter_configs.AlterableConfig(name=key, value=value)
                        for key, _, value in entries
                    ),
                )
                for kind, name, entries in asked
            ),
            validate_only=validates,
        )
        answer = await self.change(ApiKey.ALTER_CONFIGS, request, changed)
        responses = [
            alter_configs.AlterConfigsResourceResponse(
                error_code=error,
                error_message=text_of(error),
                resource_type=kind,
                resource_name=name,
            )
            for kind, name, error in told
        ]
        self.compare(answer, alter_configs.AlterConfigsResponse(responses=tuple(responses)))

    # --- groups -----------------------------------------------------------------------

    async def configure_group(self) -> None:
        """Alter the configs of a group that has no members; every value is the broker's own."""
        if self.group_config is None:
            return
        rng = self.context.rng
        replaces, validates = self.context.chance(0.4), self.context.chance(0.2)
        entries: list[Entry] = []
        for key in rng.sample(_GROUP_KEYS, rng.choice((0, 1, 1, 2))):
            value = format_value(group_value(self.settings, {}, key))
            entries.append((key, 0 if replaces else rng.choice((0, 0, 1)), value))
        if self.context.chance(0.2):
            entries.append(rng.choice((("no.such.key", 0, "1"), (_GROUP_KEYS[0], 0, "-1"))))
        config = {} if replaces else dict(self.group_config)
        for key, operation, value in entries:
            if operation == 1:
                config.pop(key, None)
            else:
                config[key] = value or ""
        error = ErrorCode.none
        keys = [key for key, _, _ in entries]
        name = rng.choice((self.group, self.group, self.group, ""))
        if len(set(keys)) < len(keys) or not name:
            error = ErrorCode.invalid_request
        elif _is_refused(self.settings, config):
            error = ErrorCode.invalid_config
        asked = [(GROUP, name, entries)]
        try:
            await self._alter(asked, [error], {}, replaces=replaces, validates=validates)
        except NotSentError:
            raise
        except LostError:
            # It may be as before or as after, and is asked for no more.
            self.group_config = self.group_config if validates else None
            raise
        if error is ErrorCode.none and not validates:
            self.group_config = config

    async def change(
        self, api: ApiKey, request: Any, after: Mapping[str, KnownTopic]
    ) -> ExactAnswer[Any]:
        """Ask for a change; without an answer each topic is as it was or as `after` has it.

        Raises `LostError`.
        """
        try:
            answer = await self.ask(api, request)
        except NotSentError:
            raise
        except LostError:
            for name, topic in after.items():
                self.model.doubt(name, topic)
            raise
        self.model.topics |= after
        return answer


def _with_set(config: tuple[str, str | None]) -> Entry:
    return config[0], 0, config[1]


def _is_refused(settings: Any, config: Mapping[str, str]) -> bool:
    if not set(config) <= set(GROUP_KEYS):
        return True
    try:
        check_group_overrides(settings, config)
    except ConfigError:
        return True
    return False
