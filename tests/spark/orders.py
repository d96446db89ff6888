"""The orders that crash tests feed their queries, and what may be visible of them.

Pure: `check_*` get the records that a ``read_committed`` reader saw, as (key, value), and return
what is wrong with them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CUSTOMERS_COUNT = 8
BEGIN_S = 1_700_000_040
"""A whole minute."""
PAYMENT_DELAY_S = 5
PAYMENT_TIME_MAX_S = 60
WINDOW_S = 60
ORDERS_PER_S = 2

Records = Sequence[tuple[bytes | None, bytes]]


@dataclass(frozen=True, slots=True)
class Order:
    """One order; everything about it follows from its number."""

    number: int

    @property
    def customer(self) -> str:
        return f"c{self.number % CUSTOMERS_COUNT}"

    @property
    def amount(self) -> int:
        return self.number * 7 % 100 + 1

    @property
    def at(self) -> int:
        return BEGIN_S + self.number // ORDERS_PER_S

    @property
    def is_paid(self) -> bool:
        return self.number % 3 > 0

    @property
    def record(self) -> tuple[bytes, bytes]:
        fields = {"customer": self.customer, "amount": self.amount, "at": self.at}
        return self.customer.encode(), json.dumps({"order": self.number, **fields}).encode()

    @property
    def payment(self) -> tuple[bytes, bytes]:
        fields = {"order": self.number, "at": self.at + PAYMENT_DELAY_S}
        return self.customer.encode(), json.dumps(fields).encode()


def check_copies(records: Records, count: int) -> list[str]:
    """Every order once; each customer's in the order they were sent."""
    found = check_each_once(records, count)
    numbers = defaultdict(list)
    for key, value in records:
        numbers[key].append(json.loads(value)["order"])
    found += [f"orders of {key!r} change places" for key, n in numbers.items() if n != sorted(n)]
    return found


def check_each_once(records: Records, count: int) -> list[str]:
    """Every order once, in any order."""
    return _differences(
        Counter(json.loads(value)["order"] for _, value in records), Counter(range(count))
    )


def check_counts(records: Records, count: int) -> list[str]:
    """The counts of each customer grow, and the last one is the true one."""
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    for key, value in records:
        seen[key].append(int(value))
    true = Counter(Order(number).customer.encode() for number in range(count))
    found = [f"counts of {key!r} do not grow: {n}" for key, n in seen.items() if _falls(n)]
    return found + _differences(Counter({key: n[-1] for key, n in seen.items()}), true)


def check_balances(records: Records, count: int) -> list[str]:
    """Every order once, and each balance is the one before it and the amount."""
    found = check_each_once(records, count)
    balances: dict[bytes | None, int] = defaultdict(int)
    for key, value in records:
        entry = json.loads(value)
        balances[key] += entry["amount"]
        if balances[key] != entry["balance"]:
            found.append(f"{key!r}: {balances[key]} is visible, {entry['balance']} is in the state")
    return found


def check_chain(records: Records, count: int) -> list[str]:
    """Every order once, and each entry names the token of the one before it.

    The tokens are random, so a batch that runs twice makes others: the state and the output agree
    only if both are of the same run.
    """
    found = check_each_once(records, count)
    tokens: dict[bytes | None, str] = defaultdict(str)
    for key, value in records:
        entry = json.loads(value)
        if entry["before"] != tokens[key]:
            found.append(
                f"{key!r}: token {tokens[key]!r} is visible, {entry['before']!r} was in the state"
            )
        tokens[key] = entry["after"]
    return found


def check_windows(records: Records, count: int) -> list[str]:
    """Each window once with its true sum, and none missing that the watermark has passed."""
    true: Counter[tuple[bytes, int]] = Counter()
    for number in range(count):
        order = Order(number)
        true[order.customer.encode(), order.at // WINDOW_S * WINDOW_S] += order.amount
    seen: Counter[tuple[bytes, int]] = Counter()
    found = []
    for key, value in records:
        entry = json.loads(value)
        window = key or b"", entry["minute"]
        seen[window] += 1
        if true[window] != entry["amount"]:
            found.append(f"window {window} holds {entry['amount']}, not {true[window]}")
    found += [f"window {window} is there {n} times" for window, n in seen.items() if n > 1]
    passed = Order(count - 1).at - 2 * 60 - WINDOW_S
    missing = [window for window in true if window[1] < passed and window not in seen]
    return found + [f"window {window} is missing" for window in missing]


def check_joined(records: Records, count: int) -> list[str]:
    """Each paid order once with its payment; each unpaid one once, after its minute."""
    found = []
    seen: Counter[int] = Counter()
    for _, value in records:
        entry = json.loads(value)
        order = Order(entry["order"])
        seen[order.number] += 1
        paid_at = order.at + PAYMENT_DELAY_S if order.is_paid else None
        if entry.get("paid_at") != paid_at:
            found.append(f"order {order.number} is joined with {entry.get('paid_at')}")
    found += [f"order {number} is there {n} times" for number, n in seen.items() if n > 1]
    passed = Order(count - 1).at - 60 - 2 * PAYMENT_TIME_MAX_S
    for number in range(count):
        order = Order(number)
        if number not in seen and (order.is_paid or order.at < passed):
            found.append(f"order {number} is missing")
    return found


def _falls(numbers: list[int]) -> bool:
    return any(after <= before for before, after in pairwise(numbers))


def _differences(seen: Counter, true: Counter) -> list[str]:  # type: ignore[type-arg]
    names: Iterable[object] = seen.keys() | true.keys()
    wrong = [name for name in names if seen[name] != true[name]]
    return [f"{name!r}: {seen[name]} instead of {true[name]}" for name in wrong[:20]]
