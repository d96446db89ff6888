"""What a verified batch may still be appended to, and which sequence a producer may begin with."""

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.limits import VERIFICATIONS_REMEMBERED_COUNT_MAX
from oncelog.storage import NO_SEQUENCE, Verification
from tests.unit.storage.context import NOW_MS, LogContext

PRODUCER = 5
OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number


def begin(
    ctx: LogContext,
    sequence: int = 0,
    *,
    epoch: int = 0,
    tv2: bool = False,
    producer: int = PRODUCER,
) -> Verification:
    return ctx.log.producers.verifications.begin(
        producer, epoch, sequence, bumps_epoch=tv2, now_ms=ctx.now_ms
    )


def bounce(ctx: LogContext, sequence: int, epoch: int = 0, producer: int = PRODUCER) -> None:
    found = begin(ctx, sequence, epoch=epoch, producer=producer)
    ctx.log.producers.verifications.end(found)


def permit(ctx: LogContext, epoch: int = 0) -> Verification:
    return ctx.log.producers.verifications.permit(
        PRODUCER, epoch, bumps_epoch=False, now_ms=ctx.now_ms
    )


def write(ctx: LogContext, sequence: int, epoch: int = 0) -> ErrorCode:
    return ctx.append(producer=PRODUCER, epoch=epoch, sequence=sequence, transactional=True).error


# Whether an append may follow.


def test_a_verification_stands_until_its_transaction_ends(ctx: LogContext) -> None:
    verification = begin(ctx)
    assert ctx.log.producers.verifications.allows(verification)
    ctx.end(PRODUCER, 0)
    assert not ctx.log.producers.verifications.end(verification)


def test_the_end_of_another_producers_transaction_changes_nothing(ctx: LogContext) -> None:
    verification = begin(ctx)
    ctx.end(PRODUCER + 1, 0)
    assert ctx.log.producers.verifications.end(verification)


def test_a_marker_that_is_refused_voids_nothing(ctx: LogContext) -> None:
    ctx.end(PRODUCER, 3)
    verification = begin(ctx, epoch=3)
    assert ctx.end(PRODUCER, 2).error is ErrorCode.invalid_producer_epoch
    assert ctx.log.producers.verifications.end(verification)


@pytest.mark.parametrize(
    ("epoch", "tv2", "stands"),
    [
        (0, True, False),  # The transaction that the marker ends.
        (1, True, True),  # TV2: the marker carries the epoch of the next one.
        (1, False, False),  # TV1: all transactions share the epoch.
        (2, False, True),  # A takeover while the abort's marker comes again.
    ],
)
def test_only_the_marker_of_its_own_transaction_voids_a_verification(
    ctx: LogContext, epoch: int, tv2: bool, stands: bool
) -> None:
    verification = begin(ctx, epoch=epoch, tv2=tv2)
    ctx.end(PRODUCER, 1, transaction_version=2 if tv2 else 0)
    assert ctx.log.producers.verifications.end(verification) is stands


def test_those_that_wait_together_share_one_and_the_first_append_serves_all(
    ctx: LogContext,
) -> None:
    first, second = begin(ctx, 0), begin(ctx, 1)
    assert first is second
    assert ctx.log.producers.verifications.end(first)
    assert write(ctx, 0) is ErrorCode.none
    assert ctx.log.producers.verifications.end(second)
    assert len(ctx.log.producers.verifications) == 0


def test_what_was_verified_for_one_transaction_is_not_appended_to_the_next(
    ctx: LogContext,
) -> None:
    """INV-3, no ABA: under TV1 both have the same epoch."""
    waits = begin(ctx, 0)
    write(ctx, 0)
    assert ctx.log.producers.verifications.allows(waits)
    ctx.end(PRODUCER, 0)
    assert not ctx.log.producers.verifications.allows(waits)
    write(ctx, 1)
    assert ctx.log.producers.transaction_is_open(PRODUCER, 0)
    assert not ctx.log.producers.verifications.end(waits)


def test_a_permit_names_the_transaction_that_is_open(ctx: LogContext) -> None:
    write(ctx, 0)
    named = permit(ctx)
    write(ctx, 1)
    assert ctx.log.producers.verifications.allows(named)
    ctx.end(PRODUCER, 0)
    assert not ctx.log.producers.verifications.allows(named)
    write(ctx, 2)
    assert not ctx.log.producers.verifications.allows(named)
    assert ctx.log.producers.verifications.allows(permit(ctx))


def test_a_permit_before_the_first_append_stands_until_the_marker(ctx: LogContext) -> None:
    named = permit(ctx)
    assert ctx.log.producers.verifications.allows(named)
    ctx.end(PRODUCER, 0)
    assert not ctx.log.producers.verifications.allows(named)


def test_a_newer_epochs_first_append_drops_what_older_ones_left(ctx: LogContext) -> None:
    old = begin(ctx, 4, epoch=0)
    newer = begin(ctx, 0, epoch=2)
    assert write(ctx, 0, epoch=1) is ErrorCode.none
    assert not ctx.log.producers.verifications.end(old)
    assert ctx.log.producers.verifications.end(newer)


def test_the_end_of_leadership_voids_everything(ctx: LogContext) -> None:
    verification = begin(ctx)
    ctx.log.producers.verifications.clear()
    assert not ctx.log.producers.verifications.end(verification)


# The lowest sequence that was bounced (INV-2).


def test_a_producer_without_state_begins_with_what_was_bounced(ctx: LogContext) -> None:
    bounce(ctx, 0)
    assert write(ctx, 1) is OUT_OF_ORDER
    assert [write(ctx, sequence) for sequence in (0, 1, 2)] == [ErrorCode.none] * 3


def test_without_a_bounce_any_first_sequence_is_taken(ctx: LogContext) -> None:
    """Its state may have expired here, as in Kafka."""
    assert write(ctx, 7) is ErrorCode.none


def test_the_lowest_of_several_bounced_sequences_counts(ctx: LogContext) -> None:
    for sequence in (5, 3, 4):
        bounce(ctx, sequence)
    assert write(ctx, 4) is OUT_OF_ORDER
    assert write(ctx, 3) is ErrorCode.none


def test_a_batch_that_is_being_verified_blocks_those_after_it(ctx: LogContext) -> None:
    begin(ctx, 0)
    assert write(ctx, 1) is OUT_OF_ORDER


def test_a_bounce_of_another_epoch_or_without_a_sequence_says_nothing(ctx: LogContext) -> None:
    bounce(ctx, 0, epoch=0)
    bounce(ctx, NO_SEQUENCE, epoch=1)
    assert write(ctx, 3, epoch=1) is ErrorCode.none


def test_with_state_the_last_sequence_in_the_log_tells_alone(ctx: LogContext) -> None:
    """A batch of the transaction before comes late and is bounced: the right one is still taken."""
    write(ctx, 0)
    ctx.end(PRODUCER, 0)
    bounce(ctx, 0)
    assert write(ctx, 2) is OUT_OF_ORDER
    assert write(ctx, 1) is ErrorCode.none


def test_a_plain_batch_is_no_concern_of_verification(ctx: LogContext) -> None:
    bounce(ctx, 0)
    assert ctx.append(producer=PRODUCER, epoch=0, sequence=1).error is ErrorCode.none


def test_a_marker_ends_what_was_bounced_in_its_transaction(ctx: LogContext) -> None:
    bounce(ctx, 0)
    ctx.end(PRODUCER, 0)
    assert len(ctx.log.producers.verifications) == 0


def test_a_restart_forgets_what_was_bounced_as_kafka_does(ctx: LogContext) -> None:
    """The producer sends again from its lowest sequence on, which is noted then."""
    bounce(ctx, 0)
    ctx.kill()
    bounce(ctx, 0)
    assert write(ctx, 1) is OUT_OF_ORDER
    ctx.restart()
    assert write(ctx, 1) is ErrorCode.none


def test_a_producer_that_does_not_hold_its_id_leaves_no_trace(ctx: LogContext) -> None:
    stranger = begin(ctx, 0)
    ctx.log.producers.verifications.end(stranger, forget=True)
    assert len(ctx.log.producers.verifications) == 0
    bounce(ctx, 2)
    stranger = begin(ctx, 3)
    ctx.log.producers.verifications.end(stranger, forget=True)
    assert write(ctx, 3) is OUT_OF_ORDER


def test_what_was_bounced_expires_with_producers(ctx: LogContext) -> None:
    expiration_ms = ctx.config.producer_id_expiration_ms
    bounce(ctx, 0)
    ctx.now_ms += 5
    bounce(ctx, 0, producer=PRODUCER + 1)
    ctx.log.producers.verifications.remove_expired(NOW_MS + expiration_ms - 1, expiration_ms)
    assert len(ctx.log.producers.verifications) == 2
    ctx.log.producers.verifications.remove_expired(NOW_MS + expiration_ms, expiration_ms)
    assert len(ctx.log.producers.verifications) == 1
    assert write(ctx, 3) is ErrorCode.none


def test_the_sweep_of_idle_producers_forgets_what_was_bounced(ctx: LogContext) -> None:
    bounce(ctx, 0)
    ctx.remove_expired([], NOW_MS + ctx.config.producer_id_expiration_ms)
    assert len(ctx.log.producers.verifications) == 0


def test_so_many_bounced_producers_are_remembered_and_the_oldest_goes_first(
    ctx: LogContext,
) -> None:
    waited, *others = range(1, VERIFICATIONS_REMEMBERED_COUNT_MAX + 3)
    waits = begin(ctx, producer=waited)
    for producer in (waited, *others):
        bounce(ctx, 0, producer=producer)
    known = ctx.log.producers.verifications
    assert len(known) == VERIFICATIONS_REMEMBERED_COUNT_MAX
    lowest = [known.lowest_sequence(producer, 0) for producer in others]
    assert lowest == [-1, -1] + [0] * (len(others) - 2)
    # One that somebody waits for is not given up for the others.
    assert known.lowest_sequence(waited, 0) == 0
    assert known.end(waits)


def test_verifications_under_way_are_not_given_up_for_others(ctx: LogContext) -> None:
    producers = range(1, VERIFICATIONS_REMEMBERED_COUNT_MAX + 2)
    both = [
        (begin(ctx, producer=producer), begin(ctx, producer=producer)) for producer in producers
    ]
    for first, _ in both:
        assert ctx.log.producers.verifications.end(first)
    for _, second in both:
        assert ctx.log.producers.verifications.end(second)


def test_inv2_the_lowest_sequence_stays_the_lowest_even_if_it_is_0(ctx: LogContext) -> None:
    bounce(ctx, 0)
    bounce(ctx, 5)
    assert ctx.log.producers.verifications.lowest_sequence(PRODUCER, 0) == 0
    begin(ctx, 5)
    assert write(ctx, 5) is OUT_OF_ORDER
