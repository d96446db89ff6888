"""Checks a run's history and final state for what its configuration excludes.

`judge` runs all of them; `CHECKERS` names them. Kinds have the names of Jepsen's Kafka workload
where it has one, else the number of the invariant (docs/decisions.md). Checkers are pure functions,
so tests show for each which histories it accepts and refuses.

Real time decides what is certain: a response follows its effect, a request takes effect only after
it was sent, and one without a response may take effect at any time or never. What the configuration
does not promise is reported too, with the reason in `Anomaly.allowed` (`excuses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncelog.simulation.checkers.access import access
from oncelog.simulation.checkers.anomaly import Anomaly, Promise
from oncelog.simulation.checkers.compaction import compactions
from oncelog.simulation.checkers.components import components
from oncelog.simulation.checkers.consumer_groups import (
    early_expulsions,
    member_epochs,
    silent_members,
    two_owners,
)
from oncelog.simulation.checkers.coordinators import decisions, fencing, producer_ids
from oncelog.simulation.checkers.cycles import g0, g1c
from oncelog.simulation.checkers.ending import (
    broker_stopped,
    differing_answers,
    disagreements,
    failed_requests,
    lag_ends,
    progress,
)
from oncelog.simulation.checkers.evidence import Evidence
from oncelog.simulation.checkers.groups import generations, ownership
from oncelog.simulation.checkers.logs import committed_views, sequences, valid_logs
from oncelog.simulation.checkers.monotonic_commits import monotonic_commits
from oncelog.simulation.checkers.named import refused_names
from oncelog.simulation.checkers.offsets import copies, offsets_with_transactions
from oncelog.simulation.checkers.reads import nonmonotonic_poll, skipped_poll, unseen
from oncelog.simulation.checkers.reassignments import reassignments
from oncelog.simulation.checkers.replicas import elections, leaders, replicas
from oncelog.simulation.checkers.told import stale_answers
from oncelog.simulation.checkers.transactions import (
    aborted_read,
    intermediate_read,
    torn_transaction,
)
from oncelog.simulation.checkers.watermarks import watermarks
from oncelog.simulation.checkers.writes import (
    duplicate,
    inconsistent_offsets,
    lost_write,
    never_sent,
    nonmonotonic_send,
)
from oncelog.simulation.final import FinalState
from oncelog.simulation.history import History

__all__ = ["CHECKERS", "Anomaly", "Evidence", "Promise", "judge"]

CHECKERS: dict[str, Callable[[Evidence], Iterable[Anomaly]]] = {
    "lost-write": lost_write,
    "inconsistent-offsets": inconsistent_offsets,
    "duplicate": duplicate,
    "never-sent": never_sent,
    "nonmonotonic-send": nonmonotonic_send,
    "aborted-read": aborted_read,
    "intermediate-read": intermediate_read,
    "torn-transaction": torn_transaction,
    "G0": g0,
    "G1c": g1c,
    "unseen": unseen,
    "nonmonotonic-poll": nonmonotonic_poll,
    "skipped-poll": skipped_poll,
    "INV-2": sequences,
    "INV-3": committed_views,
    "INV-4": decisions,
    "INV-5": fencing,
    "INV-6": offsets_with_transactions,
    "copies": copies,
    "INV-7": watermarks,
    "INV-8": generations,
    "ownership": ownership,
    "member-epochs": member_epochs,
    "two-owners": two_owners,
    "monotonic-commits": monotonic_commits,
    "silent-member": silent_members,
    "early-expulsion": early_expulsions,
    "INV-9": valid_logs,
    "INV-11": producer_ids,
    "compaction": compactions,
    "replicas": replicas,
    "leaders": leaders,
    "elections": elections,
    "reassignments": reassignments,
    "lag-ends": lag_ends,
    "named": refused_names,
    "answers": differing_answers,
    "stale-answers": stale_answers,
    "access": access,
    "progress": progress,
    "oracle": disagreements,
    "components": components,
    "broker-stopped": broker_stopped,
    "failed-request": failed_requests,
}
"""Name -> checker. INV-1 is "lost-write", INV-10 is "copies" and "torn-transaction" together."""


def judge(history: History, final: FinalState, promise: Promise) -> list[Anomaly]:
    """Return the anomalies of a run, checker by checker, in the order of `CHECKERS`.

    Anomalies whose `allowed` is not "" break no promise of the run.
    """
    evidence = Evidence(history, final, promise)
    return [anomaly for check in CHECKERS.values() for anomaly in check(evidence)]
