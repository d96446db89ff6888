"""What the metadata store holds, decoded change by change."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from oncelog.controller import layout
from oncelog.controller.contents import Contents, DamagedMetadata
from oncelog.controller.decision import Put
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicDelta,
    TopicImage,
)
from oncelog.controller.writes import topic_removal, topic_writes
from oncelog.core.listeners import Endpoint, RegisteredListener

ID_A, ID_B = UUID(int=1), UUID(int=2)
DAMAGE = [b"", b"{", b"\xff", b"[1]", b"null", b'"text"']


def topic(
    name: str = "t", topic_id: UUID = ID_A, *epochs: int, config: dict[str, str] | None = None
) -> TopicImage:
    partitions = tuple(PartitionImage(1, epoch, (1,), (1, 2)) for epoch in epochs or (0,))
    return TopicImage(name, topic_id, partitions, config or {})


class Fed(Contents):
    """Contents that a test feeds with writes, each step as one revision."""

    def __init__(self) -> None:
        super().__init__(MetadataImage(cluster_id="c"))

    def feed(self, puts: Iterable[Put | tuple[str, bytes | None]]) -> ImageDelta:
        entries = [
            (path, value, 0 if value is None else self.version_of(path) + 1)
            for path, value in sorted(puts)
        ]
        return self.take(entries, self.image.revision + 1)

    def make(self, *topics: TopicImage) -> ImageDelta:
        return self.feed(
            put for one in topics for put in topic_writes(self.image.topic(one.name), one)
        )


def test_a_topic_reads_back_as_it_was() -> None:
    contents = Fed()
    made = topic("t.x", ID_A, 0, 7, config={"retention.ms": "5"})
    assert contents.make(made) == ImageDelta(created=(made,))
    assert contents.image.topic("t.x") == contents.image.topic_by_id(ID_A) == made
    assert contents.image.revision == 1


def test_a_change_of_one_partition_names_it_alone() -> None:
    contents = Fed()
    other = topic("u", ID_B, 0)
    contents.make(topic("t", ID_A, 0, 0, 0), other)
    before = contents.image
    changed = topic("t", ID_A, 0, 0, 4)
    assert contents.make(changed) == ImageDelta(changed=(TopicDelta(changed, [2]),))
    now = contents.image.topics["t"].partitions
    assert now[0] is before.topics["t"].partitions[0]
    assert contents.image.topics["u"] is before.topics["u"]
    assert before.topics["t"].partitions[2].leader_epoch == 0


def test_another_config_concerns_every_partition_and_writes_no_state() -> None:
    contents = Fed()
    contents.make(topic("t", ID_A, 0, 0))
    changed = topic("t", ID_A, 0, 0, config={"retention.ms": "5"})
    assert [put.path for put in topic_writes(contents.image.topic("t"), changed)] == [
        layout.topic_path("t")
    ]
    assert contents.make(changed) == ImageDelta(changed=(TopicDelta(changed, range(2)),))


def test_more_partitions_are_those_that_have_changed() -> None:
    contents = Fed()
    contents.make(topic("t", ID_A, 3))
    grown = topic("t", ID_A, 3, 0, 0)
    assert contents.make(grown) == ImageDelta(changed=(TopicDelta(grown, [1, 2]),))


def test_a_topic_made_again_under_its_name_is_deleted_and_created() -> None:
    contents = Fed()
    before, again = topic("t", ID_A, 0, 0), topic("t", ID_B, 0)
    contents.make(before)
    steps = dict(topic_removal(before)) | dict(topic_writes(None, again))
    assert contents.feed(steps.items()) == ImageDelta(deleted=(before,), created=(again,))
    assert contents.image.topic_by_id(ID_A) is None
    assert contents.image.topics == {"t": again}
    assert contents.version_of(layout.state_path("t", 1)) == 0


def test_without_its_own_value_no_topic_exists() -> None:
    """The value is written last, and deleted first; what is below it may come in other steps."""
    contents = Fed()
    made = topic("t", ID_A, 0, 5)
    *states, own = topic_writes(None, made)
    for state in states:
        assert contents.feed([state]) == ImageDelta()
        assert contents.image.topics == {}
    assert contents.feed([own]) == ImageDelta(created=(made,))
    own, *states = topic_removal(made)
    assert contents.feed([own]) == ImageDelta(deleted=(made,))
    assert contents.feed(states) == ImageDelta()
    assert contents.image.topics == {}


def test_a_topic_whose_state_is_missing_is_damage_and_no_deletion() -> None:
    contents = Fed()
    made = topic("t", ID_A, 0, 0)
    contents.make(made)
    with pytest.raises(DamagedMetadata, match="/brokers/topics/t/partitions/1/state"):
        contents.feed([(layout.state_path("t", 1), None)])
    with pytest.raises(DamagedMetadata, match="/brokers/topics/u/partitions/0/state"):
        contents.feed([topic_writes(None, topic("u", ID_B))[-1]])
    # Another topic under that name has its own states, never those of the one before.
    again = topic_writes(None, topic("t", ID_B, 0, 0))
    with pytest.raises(DamagedMetadata, match="/brokers/topics/t/partitions/0/state"):
        contents.feed(again[1:])
    assert contents.image.topics == {"t": made}
    assert contents.image.revision == 1


@pytest.mark.parametrize("value", DAMAGE)
@pytest.mark.parametrize(
    "path", [layout.topic_path("t"), layout.state_path("t", 0), layout.FEATURES_PATH]
)
def test_damage_names_its_path_and_changes_nothing(path: str, value: bytes) -> None:
    contents = Fed()
    made = topic("t", ID_A, 0)
    contents.make(made)
    before = contents.image
    with pytest.raises(DamagedMetadata, match=f"the metadata at {path} is damaged"):
        contents.feed([(layout.topic_path("a"), None), (path, value)])
    assert contents.image is before
    assert contents.make(topic("t", ID_A, 1)).changed[0].partitions == [0]


def test_an_image_does_not_change_with_later_entries() -> None:
    contents = Fed()
    contents.feed([(layout.FEATURES_PATH, layout.encode_features({"transaction.version": 1}))])
    before = contents.image
    contents.feed(
        [
            (layout.FEATURES_PATH, layout.encode_features({"transaction.version": 2})),
            (layout.deleted_path("t"), layout.encode_deleted({ID_A: (1, 2)})),
            (layout.directories_path(1), layout.encode_directories({"d"})),
        ]
    )
    assert before.features["transaction.version"] == 1
    assert (before.deleted, before.directories) == ({}, {})
    now = contents.image
    assert now.features["transaction.version"] == 2
    assert (now.deleted, now.directories) == ({"t": {ID_A: (1, 2)}}, {1: frozenset({"d"})})
    contents.feed([(layout.deleted_path("t"), None)])
    assert contents.image.deleted == {}


@pytest.mark.parametrize("group_id", ["g", "", "a/b", "with space", "%2F", "ümlaut", "..", "\x00"])
def test_any_group_id_can_have_settings(group_id: str) -> None:
    contents = Fed()
    path = layout.group_config_path(group_id)
    assert "/" not in path.removeprefix(layout.GROUP_CONFIGS_PREFIX)
    contents.feed([(path, layout.encode_config({"k": "v"}))])
    assert contents.image.group_configs == {group_id: {"k": "v"}}
    contents.feed([(path, None)])
    assert contents.image.group_configs == {}


@pytest.mark.parametrize("value", DAMAGE)
def test_settings_that_are_no_mapping_are_damage(value: bytes) -> None:
    with pytest.raises(DamagedMetadata):
        Fed().feed([(layout.group_config_path("g"), value)])


def test_nothing_is_kept_of_what_is_deleted() -> None:
    contents = Fed()
    made = topic("t", ID_A, 0, 0)
    contents.make(made)
    contents.feed(topic_removal(made))
    assert not contents._versions
    assert contents.version_of(layout.topic_path("t")) == 0


def test_partitions_of_one_state_share_what_is_decoded() -> None:
    states = [layout.encode_state(one) for one in topic("t", ID_A, 7, 7).partitions]
    first, second = map(layout.decode_state, states)
    assert first is second


def test_a_cluster_without_a_controller_names_none() -> None:
    contents = Fed()
    contents.feed([(layout.CONTROLLER_PATH, layout.encode_controller(3))])
    assert contents.image.controller_id == 3
    contents.feed([(layout.CONTROLLER_PATH, None)])
    assert contents.image.controller_id == -1


def test_a_registration_that_ends_leaves_the_number_of_its_life() -> None:
    contents = Fed()
    broker = BrokerImage(
        2,
        "::1",
        9092,
        "r",
        7,
        {"f": (0, 2)},
        is_clean=False,
        is_shutting_down=True,
        incarnation="x",
    )
    path = layout.broker_path(2)
    contents.feed(
        [
            (path, layout.encode_broker(broker)),
            (layout.broker_epoch_path(2), layout.encode_number(7)),
            (layout.CONTROLLER_EPOCH_PATH, layout.encode_number(3)),
        ]
    )
    before = contents.image
    assert before.brokers == {2: broker}
    assert before.controller_epoch == 3
    contents.feed([(path, None)])
    assert (contents.image.brokers, contents.image.broker_epochs) == ({}, {2: 7})
    assert before.brokers == {2: broker}


def test_what_monitors_read_of_a_broker_and_the_controller_is_kafkas() -> None:
    value = json.loads(layout.encode_broker(BrokerImage(2, "::1", 9092, levels={"f": (0, 2)})))
    kafkas = {
        "version": 5,
        "host": "::1",
        "port": 9092,
        "endpoints": ["PLAINTEXT://[::1]:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "jmx_port": -1,
        "rack": None,
        "features": {"f": {"min_version": 0, "max_version": 2}},
    }
    assert {name: value[name] for name in kafkas} == kafkas
    assert layout.encode_controller(2) == b'{"brokerid":2,"version":1}'


def test_a_registration_names_every_listener() -> None:
    listeners = {
        "INTERNAL": RegisteredListener(Endpoint("::1", 1), "PLAINTEXT"),
        "EXTERNAL": RegisteredListener(Endpoint("h", 2), "SSL"),
    }
    broker = BrokerImage(2, "::1", 1, listeners=listeners)
    value = layout.encode_broker(broker)
    assert layout.decode_broker(layout.broker_path(2), value) == broker
    found = json.loads(value)
    assert sorted(found["endpoints"]) == ["EXTERNAL://h:2", "INTERNAL://[::1]:1"]
    assert found["listener_security_protocol_map"]["EXTERNAL"] == "SSL"
    assert broker.endpoint_of("EXTERNAL") == ("h", 2)
    assert broker.endpoint_of("OTHER") is None


def test_a_registration_of_before_there_were_names_is_of_any_listener() -> None:
    value = layout.encode_broker(BrokerImage(2, "h", 9092))
    assert "listeners" not in json.loads(value)
    broker = layout.decode_broker(layout.broker_path(2), value)
    assert broker.endpoint_of("LAN") == broker.endpoint_of("WAN") == ("h", 9092)


@pytest.mark.parametrize(
    "state",
    [
        PartitionImage(1, 4, (1, 2), ()),
        PartitionImage(-1, 5, (), (), (2,), 9, (3,), {1: (4, 17), 2: None}),
    ],
)
def test_a_partitions_state_reads_back_as_it_was(state: PartitionImage) -> None:
    value = layout.encode_state(state, 7)
    assert layout.decode_state(value) == state
    assert json.loads(value)["controller_epoch"] == 7


def test_a_state_of_before_there_were_replicas_reads_back() -> None:
    value = b'{"isr":[1],"leader":1,"leader_epoch":4,"version":1}'
    assert layout.decode_state(value) == PartitionImage(1, 4, (1,), ())


def test_what_a_whole_reading_does_not_name_is_gone() -> None:
    contents = Fed()
    contents.make(topic("t", ID_A), topic("u", ID_B))
    kept = [(put.path, put.value, 1) for put in topic_writes(None, topic("u", ID_B))]
    delta = contents.take(kept, 7, is_whole=True)
    assert [one.name for one in delta.deleted] == ["t"]
    assert (list(contents.image.topics), contents.image.revision) == (["u"], 7)
    assert contents.version_of(layout.topic_path("t")) == 0


NEWER = b'{"newest":[7],"newer":{"a":[1,null]},'


def newer(value: bytes | None) -> bytes:
    """The value as a newer version writes it, with fields that this one does not know."""
    assert value is not None
    return NEWER + value[1:]


def fields_of(value: bytes | None) -> dict[str, object]:
    assert value is not None
    found: dict[str, object] = json.loads(value)
    return found


def test_fields_of_a_newer_version_survive_a_rewrite() -> None:
    contents = Fed()
    made = topic("t", ID_A, 3)
    contents.feed((path, newer(value)) for path, value in topic_writes(None, made))
    found = contents.image.topics["t"]
    assert replace(found.partitions[0], unknown_fields="") == made.partitions[0]
    changed = replace(
        found, config={"a": "b"}, partitions=(replace(found.partitions[0], leader_epoch=4),)
    )
    for _, value in topic_writes(found, changed):
        assert fields_of(value).items() >= {"newest": [7], "newer": {"a": [1, None]}}.items()


def test_a_registration_keeps_the_fields_of_its_newer_broker() -> None:
    contents = Fed()
    path = layout.broker_path(1)
    contents.feed([(path, newer(layout.encode_broker(BrokerImage(1, "h", 9092))))])
    rewritten = layout.encode_broker(replace(contents.image.brokers[1], is_shutting_down=True))
    assert fields_of(rewritten)["newer"] == {"a": [1, None]}
    assert fields_of(rewritten)["shutting_down"] is True


def test_a_field_that_this_version_writes_is_never_kept_from_before() -> None:
    eligible = replace(topic().partitions[0], eligible=(2,))
    read = layout.decode_state(newer(layout.encode_state(eligible)))
    assert "eligible" not in fields_of(layout.encode_state(replace(read, eligible=())))
