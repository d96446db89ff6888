"""What the demo kills is started again, and when."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.demo.options import JobOptions
from oncelog.cli.demo.plan import KillTarget, PlannedKill
from oncelog.cli.demo.processes import DemoFailed, SparkJob
from oncelog.cli.demo.watch import Kill, Steps, WatchedJob
from oncelog.spark.progress import CrashRow

LEADER, CONTROLLER = 2, 3


class Life:
    """What happened, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []


class FakeJob(SparkJob):
    """Runs until it has taken all of its steps."""

    def __init__(self, life: Life, steps: "Script", folder: Path) -> None:
        options = JobOptions("", "", "", "", "", "", "", 1)
        super().__init__(options, folder)
        self._life, self._steps = life, steps

    @property
    def exit_code(self) -> int | None:
        return None if self._steps.left else 0

    def start(self) -> None:
        self._life.told.append("job")

    def kill(self) -> None:
        self._life.told.append("kill job")


class Script(Steps):
    """One step of the job at each look."""

    def __init__(self, life: Life, left: list[tuple[str, int]]) -> None:
        super().__init__(Path("none"))
        self._life, self.left = life, left

    def look(self) -> list[dict[str, Any]]:
        if not self.left:
            return []
        step, batch = self.left.pop(0)
        self._life.told.append(f"{step} {batch}")
        self.all.append({"step": step, "batch": batch})
        return self.all[-1:]


class FakeBrokers:
    """In sync again at the third look."""

    def __init__(self, life: Life, count: int) -> None:
        self._life, self.count, self._looks_count = life, count, 0

    def kill(self, target: KillTarget) -> int:
        self._life.told.append(f"kill {target}")
        return CONTROLLER if target is KillTarget.CONTROLLER else LEADER

    def restart(self) -> None:
        self._life.told.append("restart")
        self._looks_count = 0

    def is_whole(self) -> bool:
        self._life.told.append("look")
        self._looks_count += 1
        return self._looks_count == 2


def watched(life: Life, tmp_path: Path, count: int, steps: list[tuple[str, int]]) -> WatchedJob:
    script = Script(life, steps)
    job = FakeJob(life, script, tmp_path)
    brokers = FakeBrokers(life, count)
    return WatchedJob(
        job, brokers, script, tmp_path, lambda _: None, lambda _: None, sync_look_s=0.0
    )


def test_the_only_broker_is_started_again_at_once(tmp_path: Path) -> None:
    life = Life()
    watch = watched(life, tmp_path, 1, [("ending", 4), ("txn_ended", 4)])
    kills = watch.run([PlannedKill(KillTarget.BROKER, 4, "ending", 0)])
    assert [kill.victim for kill in kills] == ["broker"]
    assert life.told == ["job", "ending 4", "kill broker", "txn_ended 4", "restart"]


def test_one_of_three_stays_away_until_a_batch_is_committed_without_it(tmp_path: Path) -> None:
    life = Life()
    steps = [("ending", 4), ("txn_ended", 4), ("ending", 5), ("txn_ended", 5)]
    kills = watched(life, tmp_path, 3, steps).run([PlannedKill(KillTarget.LEADER, 4, "ending", 0)])
    assert [kill.victim for kill in kills] == [f"leader, broker {LEADER}"]
    # The step that came while it was killed is that of the batch which it hit.
    assert life.told[:3] == ["job", "ending 4", "kill leader"]
    assert life.told[3:7] == ["txn_ended 4", "ending 5", "txn_ended 5", "restart"]


def test_nothing_else_is_killed_before_all_replicas_are_in_sync_again(tmp_path: Path) -> None:
    life = Life()
    steps = [(step, batch) for batch in range(4, 9) for step in ("ending", "txn_ended")]
    plan = [
        PlannedKill(KillTarget.LEADER, 4, "ending", 0),
        PlannedKill(KillTarget.CONTROLLER, 5, "txn_ended", 0),
    ]
    kills = watched(life, tmp_path, 3, steps).run(plan)
    assert [kill.victim for kill in kills][1:] == [f"controller, broker {CONTROLLER}"]
    second = life.told.index("kill controller")
    assert life.told[:second].count("restart") == 1
    assert life.told[:second].count("look") == 2


def test_a_fail_over_that_takes_too_long_ends_the_demo(tmp_path: Path) -> None:
    life = Life()
    watch = watched(life, tmp_path, 3, [("ending", 4), ("txn_ended", 4), ("ending", 5)])
    watch.failover_s_max = 0.0
    with pytest.raises(DemoFailed, match=f"broker {LEADER} was away"):
        watch.run([PlannedKill(KillTarget.LEADER, 4, "ending", 0)])


def test_a_kill_is_told_by_what_was_killed() -> None:
    spark = PlannedKill(KillTarget.SPARK, 4, "ending", 0)
    assert Kill(spark, 4, CrashRow.ENDING).victim == "Spark job"
