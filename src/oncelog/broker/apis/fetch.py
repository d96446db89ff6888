"""Handles Fetch (1), versions 4-18: returns whole batches from partitions' logs.

A read ends at the high watermark; for read_committed it ends at the LSO and lists the aborted
transactions in its range (INV-3, INV-7); a follower's ends with the log
(`oncelog.broker.apis.fetch_follower`). The limits of the partition, the request and the broker
apply, but the first batch is always whole. With fewer than `min_bytes` readable the reply waits up
to `max_wait_ms`; appends to the partitions wake it. As in Kafka's `fetchMessages` an error in a
partition, an epoch that diverges, or a replica that is to be preferred, ends the wait; partitions
that the metadata does not have when the request comes do not, unless it names no others. Later
requests of the connection proceed meanwhile (D13).

Records that are not at a log's tail and not known to be in memory are read in the executor,
together with all that follow them in the request, and the reply waits (D12). A partition that was
deleted or has another leader by then gets that error.

Damage is reported per partition; the other partitions return records. As in Kafka a broken batch
header gets CORRUPT_MESSAGE, a failed read KAFKA_STORAGE_ERROR, and the client checks the records'
CRC.

Fetch sessions (KIP-227) are stored in `oncelog.broker.partitions.fetch_sessions`; of their
partitions those are read that may have news (`oncelog.broker.apis.fetch_incremental`). A consumer
that names its rack (KIP-392) may read from a
follower, up to the follower's own high watermark. Gap: none known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from oncelog.broker.apis.fetch_incremental import kind_of
from oncelog.broker.apis.fetch_reading import Reading
from oncelog.broker.net.request import Buffers, Request
from oncelog.broker.partitions.fetch_sessions import FINAL_EPOCH, NO_SESSION, FetchContext
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.protocol.fetch import FetchRequest, encode_fetch_response, parse_fetch_request

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

Look: TypeAlias = Callable[[FetchRequest, FetchContext | None], Reading | None]
"""Asks which topics the client may read; the request has all those of its session."""


def handle(
    context: Context, request: Request[memoryview], look: Look | None = None
) -> Buffers | Pending[Buffers]:
    """Reply with what is readable now, or wait for more.

    `look` returns the reading of a request of which something is refused, which a broker without an
    authorizer does not ask.
    """
    version = request.version
    fetch = parse_fetch_request(request.body, version)
    kind: type[Reading] = Reading
    sessions = context.partitions.fetch_sessions
    if fetch.replica_epoch >= 0:
        # Imported here because a lone broker has no follower.
        from oncelog.broker.apis.fetch_follower import FollowerReading

        kind = FollowerReading
        sessions = context.partitions.follower_sessions
    session = None
    if fetch.session_epoch != FINAL_EPOCH or fetch.session_id != NO_SESSION:
        begun = sessions.begin(fetch, version, context.clock.now_ms())
        if isinstance(begun, ErrorCode):
            error = request.meter.told(begun)
            return encode_fetch_response(version, request.correlation_id, [], error=error)
        if begun is not None:
            session = begun
            fetch = fetch._replace(topics=begun.topics)
            if kind is Reading:
                kind = kind_of(begun)
    reading = None if look is None else look(fetch, session)
    if reading is None:
        reading = kind(context, request, fetch, session)
    reading.read()
    if reading.cold:
        return reading.wait_for_disk()
    if fetch.max_wait_ms <= 0 or reading.is_enough or reading.waits_for_nothing:
        return reading.encode()
    return reading.wait()
