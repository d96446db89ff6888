"""Compares what a broker names before and after a restart that no request came between."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.controller.image import MetadataImage

__all__ = ["differences"]


def differences(
    before: MetadataImage, after: MetadataImage, *, was_stopped: bool, is_lone: bool
) -> Iterator[str]:
    """Say what a restart has changed.

    After a lone broker's stop in order leader epochs are the same; else one more may have begun. In
    a cluster leaders and ISRs may have changed any number of times.
    """
    if is_lone and after.controller_id not in after.brokers:
        yield f"{after.controller_id} is the controller and no broker"
    for what in ("cluster_id", "features", "group_configs", "brokers"):
        old, new = getattr(before, what), getattr(after, what)
        if what == "brokers":
            # Each life has a number of its own.
            old, new = ({id_: (b.host, b.port) for id_, b in each.items()} for each in (old, new))
            if not is_lone and new.items() <= old.items():
                continue
        if old != new:
            yield f"{what} was {old}, is {new}"
    if after.revision < before.revision:
        yield f"the revision went from {before.revision} to {after.revision}"
    for name in sorted({*before.topics, *after.topics}):
        old_topic, new_topic = before.topic(name), after.topic(name)
        if old_topic is None or new_topic is None:
            yield f"topic {name} was {old_topic}, is {new_topic}"
            continue
        old_fields = old_topic.topic_id, dict(old_topic.config), len(old_topic.partitions)
        new_fields = new_topic.topic_id, dict(new_topic.config), len(new_topic.partitions)
        if old_fields != new_fields:
            yield f"topic {name} was {old_fields}, is {new_fields}"
            continue
        pairs = zip(old_topic.partitions, new_topic.partitions, strict=True)
        for index, (old_one, new_one) in enumerate(pairs):
            risen = new_one.leader_epoch - old_one.leader_epoch
            is_same = old_one.replicas == new_one.replicas
            if is_lone:
                is_same = is_same and old_one.isr == new_one.isr
                is_same = is_same and risen in ((0,) if was_stopped else (0, 1))
            if not is_same or risen < 0:
                yield f"{name}-{index} was {old_one}, is {new_one}"
