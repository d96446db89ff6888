"""The catalogue of what a campaign has to reach, and its counts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from oncelog.core.ids import TopicPartition
from oncelog.group.states import MOVES
from oncelog.simulation.coverage import (
    CATALOGUE,
    CONSUMER_GROUP_STATES,
    FAULT_KINDS,
    GROUP_CONVERSIONS,
    MEMBER_STATES,
    UNREACHABLE,
    Coverage,
)
from oncelog.simulation.crashes import CrashContext, CrashPlace, spark_crash
from oncelog.simulation.history import (
    BrokerDied,
    Event,
    Fault,
    History,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
)
from oncelog.transaction.states import LEGAL_PREVIOUS


def history(*events: Event) -> History:
    made = History()
    for event in events:
        made.record(event)
    return made


def printed(coverage: Coverage) -> str:
    console = Console(file=io.StringIO(), width=160, color_system=None)
    console.print(coverage.table())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_catalogue_names_each_state_and_each_legal_move_once() -> None:
    assert len(set(CATALOGUE)) == len(CATALOGUE)
    moves = [name for name in CATALOGUE if "->" in name]
    legal = [previous for states in LEGAL_PREVIOUS.values() for previous in states]
    legal_in_groups = [after for states in MOVES.values() for after in states]
    others = (*GROUP_CONVERSIONS, *CONSUMER_GROUP_STATES, *MEMBER_STATES)
    more = [name for name in others if "->" in name]
    assert len(moves) == len(legal) + len(legal_in_groups) + len(more)
    assert "transaction/PrepareCommit->CompleteCommit" in CATALOGUE
    assert "group/Stable->PreparingRebalance" in CATALOGUE


def test_each_fault_kind_is_in_the_catalogue() -> None:
    kinds = [kind for kinds in FAULT_KINDS.values() for kind in kinds]
    assert [f"fault/{kind}" for kind in kinds] == [n for n in CATALOGUE if n.startswith("fault/")]


def test_only_names_of_the_catalogue_are_called_unreachable() -> None:
    assert set(UNREACHABLE) <= set(CATALOGUE)


def test_counts_of_two_runs_add_up() -> None:
    one, two = Coverage(), Coverage()
    one.count("fault/kill", 3)
    two.count("fault/kill")
    two.count("fault/drift")
    one.merge(two)
    assert one.counts == {"fault/kill": 4, "fault/drift": 1}


def test_what_is_below_the_minimum_is_unreached_and_the_unreachable_is_not_asked_for() -> None:
    coverage = Coverage()
    coverage.count("fault/kill", 20)
    coverage.count("fault/drift", 19)
    missing = coverage.unreached()
    assert "fault/kill" not in missing
    assert missing["fault/drift"] == 19
    assert missing["fault/torn-write"] == 0
    assert not set(missing) & set(UNREACHABLE)
    assert coverage.reached("fault") == (1, sum(map(len, FAULT_KINDS.values())))


def test_json_brings_the_same_counts_back() -> None:
    coverage = Coverage()
    coverage.count("group/Stable", 7)
    assert Coverage.from_json(coverage.to_json()).counts == coverage.counts


@pytest.mark.parametrize("text", ["[]", '{"a": "b"}', "{"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Coverage.from_json(text)


def test_the_table_tells_what_is_missing_unreachable_and_unlisted() -> None:
    coverage = Coverage()
    coverage.count("fault/kill", 1_234)
    coverage.count("fault/drift", 2)
    coverage.count("fault/kil", 1)
    lines = {line.split()[1]: line for line in printed(coverage).splitlines() if "fault" in line}
    assert "1,234" in lines["kill"]
    assert "below 20" in lines["drift"]
    assert "never reached" in lines["freeze"]
    assert "not in the catalogue" in lines["kil"]
    assert "unreachable: needs a second broker" in printed(coverage)


def test_faults_and_crash_rows_of_a_run_are_counted() -> None:
    coverage = Coverage()
    inside = CrashContext(2.0, "broker-0", "kill", (CrashPlace.PREPARED, CrashPlace.LOADING))
    coverage.add_run(
        history(Fault(1.0, "", "kill", "broker-0"), BrokerDied(1.0, "broker-0", 0, "kill")),
        [inside, spark_crash(3.0, "driver", "tasks_done"), spark_crash(4.0, "driver", "")],
    )
    assert coverage.counts == {
        "fault/kill": 1,
        "crash/PREPARED": 1,
        "crash/LOADING": 1,
        "crash/SPARK_TASKS_DONE": 1,
    }


def test_a_loss_of_power_is_told_by_what_the_disk_lost() -> None:
    coverage = Coverage()
    coverage.add_losses(
        [
            "/data/t-0/0.log: 61 of 183 unsynced bytes lost",
            "/data/t-1/0.log: 61 of 61 unsynced bytes lost",
            "/data/t-0: 0.log: create undone, 61 bytes",
        ]
    )
    assert coverage.counts == {"fault/torn-write": 1, "fault/lost-name": 1}


def test_the_death_of_a_client_falls_into_the_row_of_its_last_step() -> None:
    began = TransactionBegan(1.0, "c1", 0, "id")
    offsets = TransactionOffsets(2.0, "c1", 0, "g", {TopicPartition("t", 0): 1})
    ending = TransactionEnding(3.0, "c1", 0, True)
    ended = TransactionEnded(4.0, "c1", 0, True)
    death = Fault(5.0, "", "kill-client", "c1")

    def rows(*events: Event) -> list[str]:
        coverage = Coverage()
        coverage.add_run(history(*events))
        return [name for name in coverage.counts if name.startswith("crash/")]

    assert rows(began, death) == ["crash/CLIENT_IN_TRANSACTION"]
    assert rows(began, offsets, death) == ["crash/CLIENT_AFTER_OFFSETS"]
    assert rows(began, offsets, ending, death) == ["crash/CLIENT_ENDING"]
    assert rows(began, offsets, ending, ended, death) == []
    assert rows(began, Fault(5.0, "", "kill-client", "c")) == []
    life = TransactionBegan(1.0, "c1.0.2", 0, "id")
    assert rows(life, death) == ["crash/CLIENT_IN_TRANSACTION"]
    assert rows(began, Fault(5.0, "", "delay", "c1")) == []


def test_the_death_of_a_broker_counts_what_clients_waited_for_and_a_stop_does_not() -> None:
    began = [TransactionBegan(1.0, who, 0, who) for who in ("a", "b", "c")]
    offsets = TransactionOffsets(2.0, "a", 0, "g", {})
    ending = [TransactionEnding(3.0, who, 0, True) for who in ("b", "c")]
    coverage = Coverage()
    death, again = BrokerDied(4.0, "broker-0", 0, "power"), BrokerDied(4.1, "broker-0", 1, "kill")
    coverage.add_run(history(*began, offsets, *ending, death, again))
    assert coverage.counts == {"crash/END_TXN_IN_FLIGHT": 1, "crash/OFFSETS_IN_TRANSACTION": 1}
    stopped = Coverage()
    inside = CrashContext(4.0, "broker-0", "stop", (CrashPlace.STOPPING,))
    end = BrokerDied(4.0, "broker-0", 0, "stop")
    stopped.add_run(history(*began, offsets, *ending, end), [inside])
    assert stopped.counts == {}
