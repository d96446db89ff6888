"""The judges of Spark's crash tests find one record too many, too few, or of another run."""

import json
from collections.abc import Callable

import pytest

from tests.spark import orders
from tests.spark.orders import Order, Records

COUNT = 1200


def copies() -> list[tuple[bytes | None, bytes]]:
    return [Order(number).record for number in range(COUNT)]


def counts() -> list[tuple[bytes | None, bytes]]:
    seen: dict[str, int] = {}
    records: list[tuple[bytes | None, bytes]] = []
    for number in range(COUNT):
        customer = Order(number).customer
        seen[customer] = seen.get(customer, 0) + 1
        records.append((customer.encode(), b"%d" % seen[customer]))
    return records


def balances() -> list[tuple[bytes | None, bytes]]:
    sums: dict[str, int] = {}
    records: list[tuple[bytes | None, bytes]] = []
    for order in map(Order, range(COUNT)):
        sums[order.customer] = sums.get(order.customer, 0) + order.amount
        entry = {"order": order.number, "amount": order.amount, "balance": sums[order.customer]}
        records.append((order.customer.encode(), json.dumps(entry).encode()))
    return records


def chain() -> list[tuple[bytes | None, bytes]]:
    tokens: dict[str, str] = {}
    records: list[tuple[bytes | None, bytes]] = []
    for order in map(Order, range(COUNT)):
        before = tokens.get(order.customer, "")
        tokens[order.customer] = f"t{order.number}"
        entry = {"order": order.number, "before": before, "after": tokens[order.customer]}
        records.append((order.customer.encode(), json.dumps(entry).encode()))
    return records


def windows() -> list[tuple[bytes | None, bytes]]:
    sums: dict[tuple[str, int], int] = {}
    for order in map(Order, range(COUNT)):
        window = order.customer, order.at // orders.WINDOW_S * orders.WINDOW_S
        sums[window] = sums.get(window, 0) + order.amount
    return [
        (customer.encode(), json.dumps({"minute": minute, "amount": amount}).encode())
        for (customer, minute), amount in sums.items()
    ]


def joined() -> list[tuple[bytes | None, bytes]]:
    records: list[tuple[bytes | None, bytes]] = []
    for order in map(Order, range(COUNT)):
        entry = {"order": order.number}
        if order.is_paid:
            entry["paid_at"] = order.at + orders.PAYMENT_DELAY_S
        records.append((order.customer.encode(), json.dumps(entry).encode()))
    return records


Judge = Callable[[Records, int], list[str]]

JUDGES: list[tuple[Judge, Callable[[], list[tuple[bytes | None, bytes]]]]] = [
    (orders.check_copies, copies),
    (orders.check_each_once, copies),
    (orders.check_balances, balances),
    (orders.check_chain, chain),
    (orders.check_windows, windows),
    (orders.check_joined, joined),
    (orders.check_counts, counts),
]


@pytest.mark.parametrize(("judge", "records"), JUDGES)
def test_what_is_right_passes_and_one_record_too_many_does_not(
    judge: Judge, records: Callable[[], list[tuple[bytes | None, bytes]]]
) -> None:
    right = records()
    assert judge(right, COUNT) == []
    assert judge([*right, right[100 % len(right)]], COUNT) != []


@pytest.mark.parametrize(("judge", "records"), JUDGES[:-1])
def test_a_record_that_is_missing_is_found(
    judge: Judge, records: Callable[[], list[tuple[bytes | None, bytes]]]
) -> None:
    right = records()
    assert judge(right[1:], COUNT) != []


def test_a_last_count_that_is_too_small_is_found() -> None:
    assert orders.check_counts(counts()[:-1], COUNT) != []


def test_an_order_that_is_joined_with_nothing_though_it_was_paid_is_found() -> None:
    right = joined()
    key, value = right[1]
    assert Order(1).is_paid
    wrong = [
        right[0],
        (key, json.dumps({"order": json.loads(value)["order"]}).encode()),
        *right[2:],
    ]
    assert orders.check_joined(wrong, COUNT) != []


def test_a_state_of_another_run_than_the_output_is_found() -> None:
    right = chain()
    entry = json.loads(right[500][1])
    wrong = right[:]
    wrong[500] = right[500][0], json.dumps({**entry, "after": "of another run"}).encode()
    assert orders.check_chain(wrong, COUNT) != []


def test_a_record_of_a_customer_that_overtakes_another_is_found() -> None:
    right = copies()
    assert orders.check_copies([right[orders.CUSTOMERS_COUNT], *right[:8], *right[9:]], COUNT) != []
