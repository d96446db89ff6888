"""The ways between machines, and what faults do to them."""

from __future__ import annotations

import random

from oncelog.simulation.links import ANYWHERE, LinkFault, Links


def links(seed: int = 0) -> Links:
    found = Links(random.Random(seed))
    found.name("broker", "10.0.0.1")
    return found


def test_a_link_is_drawn_once_and_is_within_the_bounds() -> None:
    all_links = links()
    for index in range(100):
        link = all_links.between("a", str(index))
        assert link is all_links.between("a", str(index))
        assert 0.00005 <= link.latency_s <= 0.002
        assert link.latency_s <= link.delay_s(0.5) <= link.delay_s(0.999) <= 3 * link.latency_s


def test_a_machine_reaches_itself_faster_than_others() -> None:
    assert links().between("a", "a").latency_s <= 0.00005


def test_a_fault_names_machines_or_processes() -> None:
    all_links = links()
    link = all_links.between("10.0.0.1", "10.0.0.2")
    for name in ("broker", "10.0.0.1", ANYWHERE):
        fault = LinkFault(name, "10.0.0.2", blocks=True)
        all_links.add(fault)
        assert link.blocked
        all_links.remove(fault)
        assert not link.blocked


def test_a_process_can_be_named_before_it_is_there() -> None:
    all_links = links()
    link = all_links.between("10.0.0.7", "10.0.0.1")
    all_links.add(LinkFault("late", "broker", blocks=True))
    assert not link.blocked
    all_links.name("late", "10.0.0.7")
    assert link.blocked


def test_a_fault_in_one_direction_leaves_the_other_alone() -> None:
    all_links = links()
    all_links.add(LinkFault("a", "b", both=False, blocks=True))
    assert all_links.between("a", "b").blocked
    assert not all_links.between("b", "a").blocked


def test_a_machine_cut_off_from_anywhere_reaches_itself() -> None:
    all_links = links()
    all_links.add(LinkFault("broker", ANYWHERE, blocks=True))
    assert all_links.between("10.0.0.1", "x").blocked
    assert all_links.between("x", "10.0.0.1").blocked
    assert not all_links.between("10.0.0.1", "10.0.0.1").blocked


def test_faults_add_up_and_end_one_by_one() -> None:
    all_links = links()
    link = all_links.between("a", "b")
    before_s = link.latency_s
    one = LinkFault("a", "b", extra_s=1.0, bytes_per_s=1000.0)
    two = LinkFault("a", "b", extra_s=2.0, jitter_s=0.5, bytes_per_s=500.0)
    all_links.add(one)
    all_links.add(two)
    assert link.latency_s == before_s + 3.0
    assert link.jitter_s > 0.5
    assert link.bytes_per_s == 500.0
    all_links.remove(two)
    assert link.latency_s == before_s + 1.0
    assert link.bytes_per_s == 1000.0
    all_links.remove(one)
    assert link.latency_s == before_s
    assert not link.bytes_per_s


def test_a_throttled_link_takes_one_write_after_the_other() -> None:
    all_links = links()
    link = all_links.between("a", "b")
    all_links.add(LinkFault("a", "b", bytes_per_s=1000.0))
    assert 1.0 < link.arrival_s(0.0, 1000, 0.0) < 1.1
    assert 3.0 < link.arrival_s(0.0, 2000, 0.0) < 3.1
    assert 10.5 < link.arrival_s(10.0, 500, 0.0) < 10.6
