"""The source's options: Spark's names, and one sentence for each mistake."""

import pickle

import pytest

from oncelog.client.settings import Role
from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.source_options import Bound, SourceOptions

GOOD = {"kafka.bootstrap.servers": "h:1", "subscribe": "a, b"}


def parse(**changes: str) -> SourceOptions:
    return SourceOptions.parse(GOOD | changes)


def test_the_names_of_sparks_own_source_work_in_any_case() -> None:
    options = SourceOptions.parse({"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "a,b,"})
    assert options.bootstrap_servers == "h:1"
    assert options.topics == ("a", "b")
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.isolation_level == "read_committed"
    assert options.starting is None
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert (options.fetch_offset_attempts, options.fetch_offset_interval_ms) == (3, 1000)
    assert SourceOptions.parse({"bootstrapServers": "h:1", "subscribe": "a"}).topics == ("a",)


def test_kafkas_settings_reach_the_client() -> None:
    options = SourceOptions.parse(
        GOOD
        | {
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.group.id": "g",
        }
    )
    assert options.client_settings(Role.CONSUMER) == {
        "client_id": "me",
        "request_timeout_ms": 5000,
        "max_partition_fetch_bytes": 1000,
    }
    assert (options.isolation_level, options.group_id) == ("read_uncommitted", "g")


def test_a_password_reaches_the_client_and_is_never_shown() -> None:
    options = SourceOptions.parse(
        GOOD
        | {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="u" password="hush";',
        }
    )
    assert "hush" not in repr(options)
    travelled = pickle.loads(pickle.dumps(options))
    assert travelled.client_settings(Role.CONSUMER) == options.client_settings(Role.CONSUMER)
    assert "security" in options.client_settings(Role.ADMIN)


def test_a_setting_without_effect_is_accepted() -> None:
    SourceOptions.parse(GOOD | {"kafka.max.poll.records": "10", "kafka.session.timeout.ms": "5"})


def test_a_time_wins_over_times_and_times_over_offsets() -> None:
    given = {"startingOffsets": "earliest"}
    assert parse(**given).starting == Bound("startingOffsets", "earliest")
    given["startingOffsetsByTimestamp"] = '{"a":{"0":5}}'
    assert parse(**given).starting == Bound(
        "startingOffsetsByTimestamp", "times", {TopicPartition("a", 0): 5}
    )
    given["startingTimestamp"] = "9"
    assert parse(**given).starting == Bound("startingTimestamp", "time", time_ms=9)


def test_offsets_of_a_checkpoint_are_offsets_to_start_at() -> None:
    text = '{"a":{"0":5,"1":-2},"@oncelog":{"cluster":"c"}}'
    starting = parse(startingOffsets=text).starting
    assert starting is not None
    assert starting.places == {TopicPartition("a", 0): 5, TopicPartition("a", 1): -2}


def test_partitions_can_be_assigned() -> None:
    options = SourceOptions.parse({"bootstrapServers": "h:1", "assign": '{"a":[0,2]}'})
    assert options.assigned == {TopicPartition("a", 0), TopicPartition("a", 2)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subscribe": ""}, "subscribe is empty"),
        ({"subscribe": ","}, "names no topic"),
        ({"subscribePattern": "a.*"}, "one of the options assign, subscribe and subscribePattern"),
        ({"kafka.bootstrap.servers": ""}, "bootstrapServers"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "above maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"isolationLevel": "sloppy"}, "isolationLevel"),
        ({"includeHeaders": "maybe"}, "includeHeaders is 'maybe'; it must be true or false"),
        ({"startingOffsets": "group"}, "groupId"),
        ({"startingOffsets": "soon"}, "startingOffsets is 'soon'"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets"),
        ({"startingOffsets": '{"a":5}'}, "startingOffsets"),
        ({"endingOffsets": "group"}, "endingOffsets is 'group'"),
        ({"startingTimestamp": "now"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "startingOffsetsByTimestamp"),
        ({"startingOffsetByTimestamp": "{}"}, "did you mean 'startingOffsetsByTimestamp'"),
        (
            {"kafka.client_id": "x"},
            "option kafka.client_id is not a known setting: did you mean client.id",
        ),
        ({"nonsense": "x"}, "Source options"),
        ({"kafka.auto.offset.reset": "latest"}, "set startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "DataFrame operations"),
        ({"kafka.enable.auto.commit": "true"}, "not supported"),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        SourceOptions.parse(GOOD | changes)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "options",
    [
        {"subscribePattern": "a("},
        {"assign": "{}"},
        {"assign": '{"a":["0"]}'},
        {"assign": '{"a":0}'},
    ],
)
def test_a_wrong_subscription_names_its_option(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        SourceOptions.parse({"bootstrapServers": "h:1"} | options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, "{}")
    with pytest.raises(UsageError, match=f"{name} is not valid in a streaming query"):
        parse(**{name: value}).check_stream()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets cannot be earliest"),
        (
            {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'},
            "of a-0 is 5, after endingOffsets, 4",
        ),
    ],
)
def test_a_batch_read_refuses_what_sparks_refuses(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(**changes).check_batch()
