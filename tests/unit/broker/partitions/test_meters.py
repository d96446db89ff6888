"""The counts of topics, and their total."""

from oncelog.broker.partitions.meters import TopicMeter, TopicMeters


def counted(first: int) -> TopicMeter:
    meter = TopicMeter()
    for number, name in enumerate(TopicMeter.__slots__):
        setattr(meter, name, first * 10**number)
    return meter


def counts(meter: TopicMeter) -> dict[str, int]:
    return {name: getattr(meter, name) for name in TopicMeter.__slots__}


def test_the_total_adds_each_count_of_all_topics_also_of_deleted_ones() -> None:
    meters = TopicMeters()
    meters.of("here").add(counted(1))
    meters.of("deleted").add(counted(3))
    meters.drop("deleted")
    meters.drop("never")
    assert counts(meters.total()) == counts(counted(4))
    assert counts(meters.of("here")) == counts(counted(1))
