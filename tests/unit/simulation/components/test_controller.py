"""The controllers that are simulated alone: sound as they are, and a slip of theirs is seen."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from oncelog.controller.decision import ControllerDecision, DecisionContext
from oncelog.controller.decisions import decide
from oncelog.controller.events import BrokersChanged
from oncelog.controller.image import MetadataImage
from oncelog.simulation.components.controller import controllers
from oncelog.simulation.components.controller_office import Decide


def found(decided: Decide = decide, runs: int = 8) -> list[str]:
    """What is found in the first run by those decisions that shows anything."""
    for seed in range(runs):
        texts = list(controllers(random.Random(f"{seed}:controllers"), decided))
        if texts:
            return texts
    return []


def test_controllers_alone_decide_by_the_rules_of_the_cluster() -> None:
    assert found(runs=40) == []


def test_an_operator_may_have_a_suspect_elected_before_all_are_back() -> None:
    assert list(controllers(random.Random("28300116:controllers"))) == []


def test_who_stays_alone_by_a_cancellation_leads_with_a_warning() -> None:
    assert list(controllers(random.Random("52000103:controllers"))) == []


@pytest.mark.parametrize("seed", [52000043, 52001404])
def test_an_added_replica_may_be_elected_once_it_is_asked_for_again(seed: int) -> None:
    """It is no longer one that is being added, and has not caught up."""
    assert list(controllers(random.Random(f"{seed}:controllers"))) == []


@pytest.mark.parametrize("seed", [2322, 52000399])
def test_rules_whose_write_was_cut_change_no_partition(seed: int) -> None:
    assert list(controllers(random.Random(f"{seed}:controllers"))) == []


def test_a_controller_that_writes_nothing_for_dead_brokers_is_found() -> None:
    def forgets(image: MetadataImage, event: Any, context: DecisionContext) -> Any:
        decision: ControllerDecision[Any] = decide(image, event, context)
        return replace(decision, writes=()) if isinstance(event, BrokersChanged) else decision

    assert found(forgets)


def test_a_controller_that_says_nothing_of_lost_records_is_found() -> None:
    def is_silent(image: MetadataImage, event: Any, context: DecisionContext) -> Any:
        decision: ControllerDecision[Any] = decide(image, event, context)
        return replace(decision, notices=())

    texts = found(is_silent)
    assert any("which is not said" in text for text in texts), texts
