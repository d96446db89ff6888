"""The source's options and offsets: text to values, and the pin that keeps a query's beginning.

Knows neither Spark nor the cluster. Offsets are Spark's own JSON, ``{"topic":{"0":23}}``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from pyarrow import fs

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError

__all__ = [
    "Offsets",
    "SourceOptions",
    "from_json",
    "limit_offsets",
    "parse_offsets",
    "read_pin",
    "to_json",
    "write_pin",
]

Offsets = dict[str, dict[str, int]]
Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class SourceOptions:
    """The options of ``format("oncelog")``, checked."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    pattern: str | None
    starting_offsets: str
    ending_offsets: str
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    isolation_level: Isolation
    group_id: str | None
    checkpoint_location: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Check the options.

        Raises `UsageError` in one sentence; an unknown option is named, not ignored.
        """
        given = {name.lower(): value for name, value in options.items() if name.lower() != "path"}
        unknown = set(given) - {name.lower() for name in _OPTIONS}
        if unknown:
            raise UsageError(
                f"option {sorted(unknown)[0]!r} is unknown; known are {', '.join(_OPTIONS)}"
            )
        servers = given.get("bootstrapservers") or given.get("kafka.bootstrap.servers")
        if not servers:
            raise UsageError("option bootstrapServers is missing")
        topics = tuple(
            name.strip() for name in given.get("subscribe", "").split(",") if name.strip()
        )
        pattern = given.get("subscribepattern")
        if bool(topics) == bool(pattern):
            raise UsageError(
                "give one of the options subscribe (topics, comma separated) and subscribePattern"
            )
        isolation = given.get("isolationlevel") or given.get(
            "kafka.isolation.level", "read_committed"
        )
        if isolation not in ("read_committed", "read_uncommitted"):
            raise UsageError(
                f"isolationLevel {isolation!r} must be read_committed or read_uncommitted"
            )
        limit = given.get("maxoffsetspertrigger")
        if limit is not None and (not limit.isdecimal() or int(limit) < 1):
            raise UsageError(f"maxOffsetsPerTrigger {limit!r} must be a positive number")
        parsed = cls(
            bootstrap_servers=servers,
            topics=topics,
            pattern=pattern,
            starting_offsets=given.get("startingoffsets", "earliest"),
            ending_offsets=given.get("endingoffsets", "latest"),
            max_offsets_per_trigger=int(limit) if limit else None,
            fail_on_data_loss=given.get("failondataloss", "true").lower() != "false",
            isolation_level=cast(Isolation, isolation),
            group_id=given.get("groupid") or given.get("kafka.group.id"),
            checkpoint_location=given.get("checkpointlocation"),
        )
        if parsed.starting_offsets == "group" and not parsed.group_id:
            raise UsageError(
                "startingOffsets=group needs the option groupId (the application_id of the sink)"
            )
        return parsed


_OPTIONS: Final = (
    "bootstrapServers",
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "isolationLevel",
    "kafka.isolation.level",
    "groupId",
    "kafka.group.id",
    "checkpointLocation",
)


def to_json(offsets: Mapping[TopicPartition, int]) -> Offsets:
    """Spark compares offsets as text, so topics and partitions stand in a fixed order."""
    result: Offsets = {}
    for topic_partition in sorted(offsets):
        result.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[
            topic_partition
        ]
    return result


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def limit_offsets(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], rows_max: int
) -> dict[TopicPartition, int]:
    """Cut the ends to about `rows_max` offsets in all.

    Shared out in proportion to what waits in each partition, as Spark's source does; a partition
    that has something gets at least one. Offsets count control records too, so a batch may hold a
    few rows less.
    """
    sizes = {tp: max(end - begins.get(tp, end), 0) for tp, end in ends.items()}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(ends)
    return {
        tp: begins.get(tp, end) + min(sizes[tp], max(sizes[tp] * rows_max // total, 1))
        if sizes[tp]
        else end
        for tp, end in ends.items()
    }


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Offsets given as JSON; -2 and -1 stand for earliest and latest. Raises `UsageError`."""
    try:
        offsets = from_json(json.loads(text))
        valid = all(type(offset) is int and offset >= -2 for offset in offsets.values())
    except (ValueError, AttributeError, TypeError):
        valid = False
    if not valid:
        raise UsageError(
            f"offsets {text!r} must be earliest, latest, group, or JSON like "
            + '{"topic":{"0":23,"1":-2}}'
        )
    return offsets


def _pin_path(options: SourceOptions) -> tuple[fs.FileSystem, str] | None:
    if options.checkpoint_location is None:
        return None
    location = options.checkpoint_location
    system, path = fs.FileSystem.from_uri(
        location if "://" in location or location.startswith("file:") else os.path.abspath(location)
    )
    what = "-".join(options.topics) or "pattern"
    return system, f"{path.rstrip('/')}/oncelog-starting-offsets-{what[:100]}.json"


def read_pin(options: SourceOptions) -> Offsets | None:
    """The beginning that an earlier run pinned, if one did and a checkpoint was named."""
    place = _pin_path(options)
    if place is None or place[0].get_file_info(place[1]).type is not fs.FileType.File:
        return None
    with place[0].open_input_stream(place[1]) as stream:
        pinned: Offsets = json.loads(stream.read())
    return pinned


def write_pin(options: SourceOptions, offsets: Offsets) -> Offsets:
    """Pin the beginning (temporary file, then rename) and return it."""
    place = _pin_path(options)
    if place is None:
        return offsets
    system, path = place
    system.create_dir(os.path.dirname(path), recursive=True)
    draft = f"{path}.{os.getpid()}.tmp"
    with system.open_output_stream(draft) as stream:
        stream.write(json.dumps(offsets).encode())
    system.move(draft, path)
    return offsets
