"""Refuses transactions by name while several brokers are registered.

Their coordinators do not follow their partitions to another broker yet. The error is the one that
every client takes as fatal: no producer goes on without its transactions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from oncelog.core.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["REFUSAL", "transactions_problem"]

log = logging.getLogger(__name__)

REFUSAL: Final = ErrorCode.transactional_id_authorization_failed


def transactions_problem(context: Context) -> str | None:
    """Return why no producer may begin with a transactional id; None on a lone broker."""
    count = len(context.image.brokers)
    if count <= 1:
        return None
    text = (
        f"Transactions need the next release: {count} brokers are registered, and the coordinator "
        "of a transactional id does not move between brokers yet. Use an idempotent producer, or a "
        "lone broker."
    )
    context.meters.transactions_refused_count += 1
    if context.meters.transactions_refused_count == 1:
        log.warning("a transactional id is refused: %s", text)
    return text
