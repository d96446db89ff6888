from oncelog.storage.leader_epochs import EpochEnd, LeaderEpochs


def test_an_epoch_ends_where_the_next_began() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (4, 25)])
    assert epochs.end_offset_for(1, 40) == EpochEnd(1, 10)
    assert epochs.end_offset_for(2, 40) == EpochEnd(1, 10)
    assert epochs.end_offset_for(3, 40) == EpochEnd(3, 25)
    assert epochs.end_offset_for(4, 40) == EpochEnd(4, 40)
    assert epochs.end_offset_for(5, 40) == EpochEnd(-1, -1)
    assert epochs.end_offset_for(0, 40) == EpochEnd(0, 0)
    assert LeaderEpochs().end_offset_for(0, 40) == EpochEnd(-1, -1)


def test_an_epoch_is_noted_once_and_replaces_one_that_wrote_nothing() -> None:
    epochs = LeaderEpochs()
    epochs.assign(0, 0)
    epochs.assign(0, 5)
    epochs.assign(2, 5)
    epochs.assign(3, 5)
    assert epochs.entries() == [(0, 0), (3, 5)]
    assert epochs.latest == 3
    assert [epochs.epoch_at(offset) for offset in (0, 4, 5, 9)] == [0, 0, 3, 3]
    assert LeaderEpochs().epoch_at(0) == -1


def test_truncation_keeps_the_epoch_of_what_remains() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (4, 25)])
    epochs.truncate_from_end(25)
    assert epochs.entries() == [(1, 0), (3, 10)]
    epochs.truncate_from_start(12)
    assert epochs.entries() == [(3, 12)]
    epochs.truncate_from_start(12)
    assert epochs.entries() == [(3, 12)]


def test_the_latest_epoch_follows_every_change() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (4, 25)])
    assert epochs.latest == 4
    epochs.truncate_from_end(25)
    assert epochs.latest == 3
    epochs.truncate_from_start(12)
    assert epochs.latest == 3
    epochs.truncate_from_end(12)
    assert epochs.latest == -1
    epochs.assign(0, 0)
    assert epochs.latest == 0
    assert LeaderEpochs().latest == -1


def test_truncation_that_changes_nothing_writes_nothing() -> None:
    epochs = LeaderEpochs([(3, 12), (4, 25)])
    epochs.truncate_from_start(12)
    epochs.truncate_from_end(26)
    assert not epochs.changed
    epochs.truncate_from_start(13)
    assert epochs.changed
