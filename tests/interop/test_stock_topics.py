"""Topics and their settings through each stock Python client's admin."""

import pytest

from tests.support.interop import Client, Record, Refused, fresh, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_a_topic_is_as_it_was_ordered(client: Client) -> None:
    name = client.topic(3, {"retention.ms": "3600000", "cleanup.policy": "compact"})
    assert client.topics()[name] == 3
    config = client.topic_config(name)
    assert config["retention.ms"] == "3600000"
    assert config["cleanup.policy"] == "compact"
    assert config["max.message.bytes"] == "1048588"
    assert config["segment.bytes"] == "1073741824"


def test_a_name_is_taken_once(client: Client) -> None:
    name = client.topic()
    with pytest.raises(Refused) as caught:
        client.create_topic(name)
    assert caught.value.name == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("name", "partitions", "config", "error"),
    [
        ("no/slashes", 1, {}, "INVALID_TOPIC_EXCEPTION"),
        ("x" * 250, 1, {}, "INVALID_TOPIC_EXCEPTION"),
        ("none-at-all", 0, {}, "INVALID_PARTITIONS"),
        ("bad-value", 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("bad-key", 1, {"no.such.key": "1"}, "INVALID_CONFIG"),
    ],
)
def test_what_is_wrong_is_named(
    client: Client, name: str, partitions: int, config: dict[str, str], error: str
) -> None:
    with pytest.raises(Refused) as caught:
        client.create_topic(name, partitions, config)
    assert caught.value.name == error


def test_a_setting_is_changed(client: Client) -> None:
    name = client.topic()
    client.set_topic_config(name, "retention.ms", "7200000")
    wait_until(lambda: client.topic_config(name)["retention.ms"] == "7200000", "the new setting")


def test_partitions_are_added_and_never_taken_away(client: Client) -> None:
    name = client.topic(2)
    client.create_partitions(name, 4)
    wait_until(lambda: client.topics()[name] == 4, "four partitions")
    assert client.sender().send(name, [Record(b"x", partition=3)]) == [0]
    with pytest.raises(Refused) as caught:
        client.create_partitions(name, 3)
    assert caught.value.name == "INVALID_PARTITIONS"


def test_a_deleted_topic_is_gone(client: Client) -> None:
    name = client.topic()
    client.delete_topic(name)
    wait_until(lambda: name not in client.topics(), "the topic to go")
    with pytest.raises(Refused) as caught:
        client.delete_topic(fresh("never-there"))
    assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"
