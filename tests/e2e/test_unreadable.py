"""Partitions that cannot be read, beside others, for the consumer and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog import EmbeddedBroker
from oncelog.cli.main import main
from oncelog.client import FatalError, NewTopic, RetriableError
from oncelog.client.sync import Admin, Consumer, Producer
from oncelog.core.ids import TopicPartition
from oncelog.storage.files import REGISTER_NAME
from tests.support.old_formats import message_set

pytestmark = [pytest.mark.slow, pytest.mark.damages]

TOPIC = "t"
BAD, GOOD = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def fill(servers: str) -> None:
    """Three batches of one record in each partition."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 2)])
    with Producer(servers) as producer:
        for number in range(3):
            for partition in (0, 1):
                producer.send(TOPIC, b"%d.%d" % (partition, number), partition=partition)
            producer.flush()


def log_of(folder: Path) -> Path:
    return folder / str(BAD) / f"{0:020d}.log"


def consume(servers: str, *more: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(
        main, ["consume", TOPIC, "--until-end", "--bootstrap-server", servers, *more]
    )
    return done.exit_code, sorted(done.stdout.split()), done.stderr


def test_a_damaged_format_in_the_middle_of_a_log_is_named_behind_what_is_sound(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        fill(servers)
        data = bytearray(log_of(tmp_path).read_bytes())
        data[len(data) // 3 + 16] = 0
        log_of(tmp_path).write_bytes(data)
        with Consumer(servers) as consumer:
            consumer.assign([BAD, GOOD])
            found = [record.value for record in consumer.poll()]
            while len(found) < 4:
                found += [record.value for record in consumer.poll()]
            assert set(found) == {b"0.0", b"1.0", b"1.1", b"1.2"}
            with pytest.raises(FatalError, match="t-0 cannot be read at offset 1: "):
                consumer.poll()
            consumer.seek(BAD, 2)
            assert [record.value for record in consumer.poll()] == [b"0.2"]
        code, printed, said = consume(servers)
        assert (code, printed) == (1, ["0.0", "1.0", "1.1", "1.2"])
        assert "t-0 cannot be read at offset 1" in said


def test_a_partition_of_an_old_format_ends_the_command_and_no_other_reader(tmp_path: Path) -> None:
    with EmbeddedBroker(str(tmp_path)) as broker:
        fill(broker.bootstrap_servers)
    log_of(tmp_path).write_bytes(message_set(1, 0, 3))
    (tmp_path / str(BAD) / REGISTER_NAME).unlink()
    with EmbeddedBroker(str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        with Consumer(servers, retry_timeout_ms=100) as consumer:
            consumer.assign([BAD, GOOD])
            assert [record.value for record in consumer.poll()] == [b"1.0", b"1.1", b"1.2"]
            with pytest.raises(RetriableError, match="t-0"):
                consumer.poll(60_000)
        assert consume(servers, "--partition", "1")[:2] == (0, ["1.0", "1.1", "1.2"])
    assert log_of(tmp_path).read_bytes() == message_set(1, 0, 3)
