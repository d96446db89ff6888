"""What an audit of a broker leaves to its next look."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.simulation.agreement import partitions
from oncelog.simulation.audit import Audit


class Log:
    """A log of one record, cut from more."""

    failure, is_deleted = None, False
    log_start_offset, log_end_offset = 0, 1


def test_the_last_stable_offset_of_a_log_that_is_cut_is_compared_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cut is done in the executor before the partition hears of it, and nobody reads then."""

    def differs(*_: object) -> Iterator[str]:
        yield "it is 1, by the log 0"

    audit = Audit(cast(Any, None), cast(Any, None))
    monkeypatch.setattr(audit, "_read", lambda *_: None)
    monkeypatch.setattr(partitions, "last_stable_offset", differs)
    partition = SimpleNamespace(
        log=Log(),
        topic_partition="t-0",
        last_stable_offset=1,
        state=SimpleNamespace(high_watermark=1),
        is_being_cut=True,
    )
    broker = cast(Any, SimpleNamespace(partitions=[partition]))
    audit._seen[cast(Any, partition.log)].raw = cast(Any, SimpleNamespace(state=None))
    assert list(audit.look_at_stable_offsets(broker)) == []
    partition.is_being_cut = False
    assert [found for _, _, found in audit.look_at_stable_offsets(broker)] == [
        "it is 1, by the log 0"
    ]
