"""How many tasks send, and what is said of a stage that waits for slots; without Spark."""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from oncelog.spark import slots
from oncelog.spark.kafka_micro_batch import KafkaMicroBatch
from oncelog.spark.slots import slots_of, waiting_reported
from oncelog.spark.targets import Targets
from tests.support.logged import said_by


def context_with(count: int | None, stages: dict[int, Any] | None = None) -> Any:
    """A SparkContext with this many slots, None if Spark does not tell, and active stages."""

    def count_slots(profile: object) -> int:
        if count is None:
            raise Py4JError("no such method")
        return count

    stages = stages or {}
    manager = SimpleNamespace(defaultResourceProfile=object)
    of_tag = SimpleNamespace(getJobIdsForTag=lambda tag: [7])
    java = SimpleNamespace(
        resourceProfileManager=lambda: manager,
        maxNumConcurrentTasks=count_slots,
        statusTracker=lambda: of_tag,
    )
    tracker = SimpleNamespace(
        getJobInfo=lambda job: SimpleNamespace(stageIds=[3, 4], status="RUNNING"),
        getStageInfo=stages.get,
        getActiveStageIds=lambda: [number for number in stages if stages[number] is not None],
    )
    return SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: java),
        defaultParallelism=6,
        statusTracker=lambda: tracker,
    )


def stage(active: int, completed: int = 0) -> Any:
    return SimpleNamespace(numActiveTasks=active, numCompletedTasks=completed)


@pytest.mark.parametrize(("told", "slots_count"), [(4, 4), (0, 1), (None, 6)])
def test_slots_are_counted_also_where_spark_does_not_tell(
    told: int | None, slots_count: int
) -> None:
    assert slots_of(context_with(told)) == slots_count
    assert slots_of(context_with(0), least=0) == 0


@pytest.mark.parametrize(
    ("slots_count", "targets", "max_tasks", "shuffles", "tasks"),
    [
        pytest.param(8, 4, None, None, 4, id="one per target"),
        pytest.param(2, 4, None, None, 2, id="fewer slots than targets"),
        pytest.param(0, 4, None, None, 1, id="no executor yet"),
        pytest.param(8, 4, 3, None, 3, id="at most max_tasks"),
        pytest.param(2, 4, 100, None, 2, id="max_tasks above the slots"),
        pytest.param(2, 4, None, "200", 4, id="without barriers tasks may wait"),
        pytest.param(2, 9, None, "5", 5, id="without barriers, few shuffle partitions"),
        pytest.param(2, 9, 3, "200", 3, id="without barriers, at most max_tasks"),
    ],
)
def test_a_task_sends_to_several_targets_where_slots_are_few(
    slots_count: int, targets: int, max_tasks: int | None, shuffles: str | None, tasks: int
) -> None:
    run: Any = SimpleNamespace(
        query_id="q",
        context=context_with(slots_count),
        has_barriers=shuffles is None,
        options=SimpleNamespace(max_tasks=max_tasks),
    )
    conf = SimpleNamespace(get=lambda name: shuffles)
    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(conf=conf))
    batch = KafkaMicroBatch(run, frame, 0)
    assert batch._task_count(Targets(("t",), (targets,))) == tasks


@pytest.mark.parametrize(
    ("stages", "lines"),
    [
        pytest.param(
            {3: None, 4: stage(0), 9: stage(1)},
            ["batch 5: the write stage waits for 2 slots at once, and other jobs hold 1 of 2"],
            id="another job holds a slot",
        ),
        pytest.param({3: stage(2), 9: stage(1)}, [], id="it does not wait: rows are encoded"),
        pytest.param({4: stage(2), 9: stage(1)}, [], id="its tasks run"),
        pytest.param({4: stage(0, 2)}, [], id="its tasks have ended"),
    ],
)
def test_a_stage_that_waits_for_slots_says_so(
    stages: dict[int, Any],
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context, looked = context_with(2, stages), threading.Event()
    tracker = context.statusTracker()
    looks = iter(range(3))

    def count_looks() -> Any:
        if next(looks, None) is None:
            looked.set()
        return tracker

    context.statusTracker = count_looks
    monkeypatch.setattr(slots, "WAITED_S", 0.001)
    with (
        caplog.at_level(logging.WARNING),
        waiting_reported(context, "tag", batch_id=5, task_count=2),
    ):
        assert looked.wait(30)
    told = [record.getMessage().split(";")[0] for record in said_by(caplog)]
    assert told == lines
