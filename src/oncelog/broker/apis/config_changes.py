"""Changes configs for AlterConfigs and IncrementalAlterConfigs.

Topic configs go into the metadata store and are in effect in the logs when the reply is sent. Group
configs go there too, and reach a group's members with their next heartbeats. This broker's configs
are fixed at its start: setting one is INVALID_REQUEST, with Kafka's message for a config that is
not dynamic; removing one that was never set changes nothing, as in Kafka. The checks and their
order are those of Kafka's `ConfigAdminManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.events import AlterGroupConfigs, AlterTopicConfigs
from oncelog.core.cluster_limits import CONTROLLER_WAIT_MS_MAX
from oncelog.core.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["ResourceChanges", "ResourceOutcome", "alter"]

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32

_EVENTS: Final = {TOPIC_RESOURCE: AlterTopicConfigs, GROUP_RESOURCE: AlterGroupConfigs}
"""What changes the configs of a resource, by its type."""


class ResourceChanges(NamedTuple):
    """What one request asks of one topic, broker or group.

    `operation` holds the numbers of the wire protocol. With `replaces`, the entries replace all
    configs of the resource.
    """

    resource_type: int
    name: str
    entries: Sequence[tuple[str, int, str | None]]
    replaces: bool = False


class ResourceOutcome(NamedTuple):
    """The result for one resource."""

    error: ErrorCode
    text: str | None = None


async def alter(
    context: Context, resources: Sequence[ResourceChanges], *, validate_only: bool
) -> list[ResourceOutcome]:
    """Change each resource independently; return the outcomes in the order of `resources`."""
    counts = Counter((r.resource_type, r.name) for r in resources)
    due_s = context.controller.due_s(CONTROLLER_WAIT_MS_MAX)
    outcomes = []
    for resource in resources:
        try:
            if counts[resource.resource_type, resource.name] > 1:
                text = "Each resource must appear at most once."
                raise ProtocolError(ErrorCode.invalid_request, text)
            outcomes.append(await _alter_one(context, resource, due_s, validate_only))
        except ProtocolError as error:
            outcomes.append(ResourceOutcome(error.code, error.message))
    return outcomes


async def _alter_one(
    context: Context, resource: ResourceChanges, due_s: float, validate_only: bool
) -> ResourceOutcome:
    changes = _checked(resource)
    if resource.resource_type == BROKER_RESOURCE:
        _refuse_broker(context, resource.name, changes)
        return ResourceOutcome(ErrorCode.none)
    kind = _EVENTS.get(resource.resource_type)
    if kind is None:
        text = f"Unknown resource type {resource.resource_type}"
        raise ProtocolError(ErrorCode.invalid_request, text)
    event = kind(resource.name, tuple(changes), resource.replaces, validate_only)
    return ResourceOutcome(*await context.controller.submit(event, due_s))


def _checked(resource: ResourceChanges) -> list[ConfigChange]:
    names = [name for name, _, _ in resource.entries]
    if len(set(names)) != len(names):
        raise ProtocolError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [
        name
        for name, operation, value in resource.entries
        if value is None and operation != ConfigOperation.DELETE
    ]
    if nulls:
        text = f"Null value not supported for : {', '.join(nulls)}"
        raise ProtocolError(ErrorCode.invalid_request, text)
    changes = []
    for name, operation, value in resource.entries:
        try:
            changes.append(ConfigChange(name, ConfigOperation(operation), value))
        except ValueError:
            text = f"Unknown operations type {operation}"
            raise ProtocolError(ErrorCode.invalid_request, text) from None
    return changes


def _refuse_broker(context: Context, name: str, changes: list[ConfigChange]) -> None:
    """Accept a broker resource that changes nothing; raise for all others."""
    if name and not (name.isascii() and name.lstrip("-").isdigit()):
        text = f"Node id must be an integer, but it is: {name}"
        raise ProtocolError(ErrorCode.invalid_request, text)
    if name and int(name) != context.broker_id:
        text = f"Unexpected broker id, expected {context.broker_id}, but received {name}"
        raise ProtocolError(ErrorCode.invalid_request, text)
    fixed = [c.name for c in changes if c.operation is not ConfigOperation.DELETE]
    if fixed:
        text = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise ProtocolError(ErrorCode.invalid_request, text)
