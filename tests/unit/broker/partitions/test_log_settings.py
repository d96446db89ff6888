"""A topic's logs get its own settings, else the broker's."""

from pathlib import Path

import pytest

from oncelog.broker.partitions.log_settings import log_config
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.ids import INTERNAL_TOPICS
from oncelog.storage import LogConfig
from tests.unit.broker.context import running

LEVELS = {
    "compression.gzip.level": "7",
    "compression.lz4.level": "12",
    "compression.zstd.level": "-5",
}


@pytest.mark.parametrize(
    ("codec", "default", "given"),
    [
        ("producer", None, None),
        ("uncompressed", None, None),
        ("snappy", None, None),
        ("gzip", -1, 7),
        ("lz4", 9, 12),
        ("zstd", 3, -5),
    ],
)
def test_the_level_is_that_of_the_codec(codec: str, default: int | None, given: int | None) -> None:
    topic = {"compression.type": codec}
    plain, set_for_all = BrokerConfig(), BrokerConfig(LEVELS)
    assert log_config(plain, topic).compression_level == default
    assert log_config(set_for_all, topic).compression_level == given
    assert log_config(plain, topic | LEVELS).compression_level == given


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("compression.zstd.level", "-131073"),
    ],
)
def test_a_level_that_the_codec_does_not_have_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BrokerConfig({key: value})


async def test_one_switch_flushes_every_topic_but_those_that_say_otherwise(tmp_path: Path) -> None:
    async with running(tmp_path, {"log.flush.interval.messages": 1}) as context:
        controller = context.broker.controller
        await controller.create_topics(
            [TopicToCreate("plain"), TopicToCreate("lax", config={"flush.messages": "1000"})]
        )
        for internal in INTERNAL_TOPICS:
            await controller.internal_topic(internal)
        found: dict[str, set[int]] = {}
        for partition in context.broker.partitions:
            topic = partition.topic_partition.topic
            found.setdefault(topic, set()).add(partition.log.config.flush_messages)
    assert found == {"lax": {1000}, "plain": {1}} | {topic: {1} for topic in INTERNAL_TOPICS}


def test_a_compacted_log_gets_the_settings_of_compaction() -> None:
    config = BrokerConfig(
        {"log.cleaner.delete.retention.ms": "7", "log.cleaner.min.cleanable.ratio": "0.1"}
    )
    made = log_config(
        config,
        {
            "cleanup.policy": "compact,delete",
            "min.compaction.lag.ms": "3",
            "max.compaction.lag.ms": "9",
            "delete.retention.ms": "5",
        },
    )
    assert made.is_compacted
    assert made.min_cleanable_dirty_ratio == 0.1
    assert (made.min_compaction_lag_ms, made.max_compaction_lag_ms) == (3, 9)
    assert (made.delete_retention_ms, log_config(config, {}).delete_retention_ms) == (5, 7)


def test_the_active_segment_of_a_compacted_log_does_not_outgrow_the_lag() -> None:
    lag = {"max.compaction.lag.ms": "9"}
    assert log_config(BrokerConfig(), {"cleanup.policy": "compact", **lag}).segment_ms == 9
    assert log_config(BrokerConfig(), lag).segment_ms == LogConfig().segment_ms
