"""Where two answers differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["differences"]

_OWN: Final = frozenset(
    {
        "throttle_time_ms",
        "throttle_ms",
        "error_message",
        "cluster_id",
        "host",
        "port",
        "log_dir",
        "total_bytes",
        "usable_bytes",
        "producer_id",
        "session_id",
        "transaction_start_time_ms",
        "timestamp",
        "last_timestamp",
        "log_append_time_ms",
        "heartbeat_interval_ms",
        "group_epoch",
        "assignment_epoch",
        "member_epoch",
        "aborted_transactions",
    }
)
"""Fields that each broker has its own values of, and texts for people."""
_LABELS: Final = (
    "resource_name",
    "resource_type",
    "topic",
    "topic_name",
    "name",
    "topic_id",
    "group_id",
    "key",
    "transactional_id",
    "user",
    "member_id",
    "partition_index",
    "partition",
    "partition_id",
    "index",
)
"""What parts of an answer are told apart by: their order is the request's here, not in Kafka."""


def differences(theirs: Any, ours: Any) -> list[tuple[str, Any, Any]]:
    """By path the values of both where they differ; a part that is missing is None."""
    theirs, ours = dict(_leaves(theirs)), dict(_leaves(ours))
    paths = dict.fromkeys((*theirs, *ours))
    return [
        (path, theirs.get(path), ours.get(path))
        for path in paths
        if theirs.get(path) != ours.get(path)
    ]


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name not in _OWN:
                yield from _leaves(value, f"{path}/{name}")
    elif isinstance(node, list) and any(isinstance(each, dict) for each in node):
        parts = _labelled(node)
        yield f"{path}/count", len(parts)
        for label, each in parts:
            yield from _leaves(each, f"{path}/{label}")
    else:
        yield path, node


def _labelled(parts: Sequence[Any]) -> list[tuple[str, Any]]:
    """Each part with its label; several with one label are numbered.

    What a request names twice may be told once or twice; parts that are alike are one.
    """
    found: list[tuple[str, Any]] = []
    seen: dict[str, int] = {}
    for _, each in sorted({str(each): each for each in parts}.items()):
        labels = (str(each.get(name) or "") for name in _LABELS)
        label = next(filter(None, labels), "")
        seen[label] = number = seen.get(label, 0) + 1
        found.append((label if number == 1 else f"{label}#{number}", each))
    return found
