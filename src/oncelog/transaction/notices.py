"""Builds the coordinator's lines in the broker's log.

Only steps that the client did not request are logged: an abort by timeout, a fencing, an expiry, a
marker that cannot be written, the work that a new leader resumes. `Notice` is an effect, so that a
line is written once its step is committed. `oncelog transactions show` shows the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import PARTITIONS_NAMED_COUNT_MAX
from oncelog.transaction.events import InitProducerId, Notice
from oncelog.transaction.states import TransactionMetadata, TransactionState

__all__ = [
    "aborted",
    "advice",
    "expired",
    "expires_soon",
    "expiry_cause",
    "fenced",
    "marker_retry_lasts",
    "refused_in_vain",
    "resumed",
    "stuck",
    "takeover",
    "timed_out",
    "timed_out_together",
    "unknown",
]

_DAY_MS = 86_400_000


def takeover(event: InitProducerId, *, is_own: bool) -> str:
    """Return why an id gets a new epoch.

    Its own producer (KIP-360), a new one or an administrator's command requested it.
    """
    who = f", {event.client}" if event.client else ""
    if event.is_administrator:
        return f"an administrator's command{who}"
    if is_own:
        return f"InitProducerId of its own producer{who}"
    return f"InitProducerId of another producer{who}"


def aborted(before: TransactionMetadata, after: TransactionMetadata, cause: str) -> Notice:
    """The coordinator aborts an open transaction and fences its producer."""
    text = f"{_who(before)}: aborted and fenced, the epoch is now {after.producer_epoch}"
    return Notice(f"{text}; partitions: {_named(before.partitions)}; cause: {cause}")


def timed_out(before: TransactionMetadata, after: TransactionMetadata, cause: str) -> Notice:
    """The same for a transaction that is open beyond its timeout."""
    return replace(aborted(before, after, cause), subject=before.transactional_id)


def timed_out_together(told: Sequence[Notice]) -> str:
    """Return one line for transactions that were aborted in one turn, with the names of some."""
    if len(told) == 1:
        return told[0].text
    named = ", ".join(each.subject for each in told[:PARTITIONS_NAMED_COUNT_MAX])
    more = len(told) - PARTITIONS_NAMED_COUNT_MAX
    rest = f" and {more} more" if more > 0 else ""
    return (
        f"{len(told)} transactions aborted and fenced; cause: their transaction timeouts;"
        f" transactional ids: {named}{rest}"
    )


def fenced(before: TransactionMetadata, after: TransactionMetadata, cause: str) -> Notice:
    """A producer without an open transaction is fenced."""
    now = f"producer {after.producer_id}, epoch {after.producer_epoch}"
    return Notice(f"{_who(before)}: fenced by {now}; cause: {cause}")


def resumed(metadata: TransactionMetadata) -> Notice:
    """Log that the end of a transaction is resumed after a load."""
    what = _outcome(metadata)
    return Notice(
        f"{_who(metadata)}: {what} markers are sent again after a load;"
        f" partitions: {_named(metadata.partitions)}"
    )


def marker_retry_lasts(
    metadata: TransactionMetadata,
    failed: Sequence[tuple[TopicPartition, ErrorCode]],
    lasts_ms: int,
) -> Notice:
    """Log that some leaders could not write a marker for a while."""
    text = f"{_who(metadata)}: no {_outcome(metadata)} marker after {lasts_ms} ms, retrying"
    return Notice(f"{text}: {_answers(failed)}", is_warning=True)


def unknown(metadata: TransactionMetadata, partitions: Iterable[TopicPartition]) -> Notice:
    """Log that the metadata shows no partition for some markers, and names no deletion of it."""
    return Notice(
        f"{_who(metadata)}: the metadata does not show {_named(partitions)} and names no deletion"
        f" of it, so its {_outcome(metadata)} marker stays owed; if the topic is gone for good,"
        " create it again and delete it",
        is_warning=True,
    )


def refused_in_vain(
    metadata: TransactionMetadata, closed: Sequence[tuple[TopicPartition, ErrorCode]]
) -> Notice:
    """Log that leaders refused a marker that has nothing to end."""
    return Notice(
        f"{_who(metadata)}: the {_outcome(metadata)} marker was refused, but nothing is open"
        f" there any more, so the transaction ends without it: {_answers(closed)}",
        is_warning=True,
    )


def stuck(metadata: TransactionMetadata, refused: Mapping[TopicPartition, ErrorCode]) -> Notice:
    """Log that leaders refuse the marker of a transaction that is open there."""
    return Notice(f"{_who(metadata)}: {advice(metadata, refused)}", is_warning=True)


def advice(metadata: TransactionMetadata, refused: Mapping[TopicPartition, ErrorCode]) -> str:
    """Return what a stuck id waits for, and the command that frees it."""
    first = min(refused)
    return (
        f"the {_outcome(metadata)} marker is refused: {_answers(tuple(refused.items()))}; once"
        " nobody else coordinates the id, end it there with: oncelog transactions abort"
        f" --topic {first.topic} --partition {first.partition} --producer-id {metadata.producer_id}"
        " --as-decided"
    )


def expires_soon(transactional_ids: Sequence[str], within_ms: int) -> Notice:
    """Log ids that were not used for long."""
    named = ", ".join(transactional_ids[:PARTITIONS_NAMED_COUNT_MAX])
    more = len(transactional_ids) - PARTITIONS_NAMED_COUNT_MAX
    rest = f" and {more} more" if more > 0 else ""
    return Notice(
        f"unless they are used, transactional ids expire within {within_ms} ms"
        f" (transactional.id.expiration.ms), and their producers fail then: {named}{rest}",
        is_warning=True,
    )


def expired(count: int, first_ids: Sequence[str], idle_ms: int) -> Notice:
    """Log ids that expired, some of them by name."""
    named = ", ".join(first_ids)
    rest = f" and {count - len(first_ids)} more" if count > len(first_ids) else ""
    return Notice(
        f"{count} transactional ids expired, not used for {idle_ms} ms"
        f" (transactional.id.expiration.ms); their producers fail at their next request:"
        f" {named}{rest}"
    )


def expiry_cause(at_ms: int, idle_ms: int) -> str:
    """Say when an id expired, in UTC, and why."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC).isoformat(" ").removesuffix("+00:00")
    return f"expired at {at} UTC after {idle_ms / _DAY_MS:.1f} days without use"


def _who(metadata: TransactionMetadata) -> str:
    id_, producer_id = metadata.transactional_id, metadata.producer_id
    return f"transactional id {id_} (producer {producer_id}, epoch {metadata.producer_epoch})"


def _outcome(metadata: TransactionMetadata) -> str:
    return "commit" if metadata.state is TransactionState.PREPARE_COMMIT else "abort"


def _named(partitions: Iterable[TopicPartition]) -> str:
    every = sorted(partitions)
    named = ", ".join(map(str, every[:PARTITIONS_NAMED_COUNT_MAX]))
    more = len(every) - PARTITIONS_NAMED_COUNT_MAX
    return (named or "none") + (f" and {more} more" if more > 0 else "")


def _answers(outcomes: Sequence[tuple[TopicPartition, ErrorCode]]) -> str:
    named = [f"{one} {error.name.upper()}" for one, error in outcomes[:PARTITIONS_NAMED_COUNT_MAX]]
    more = len(outcomes) - PARTITIONS_NAMED_COUNT_MAX
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
