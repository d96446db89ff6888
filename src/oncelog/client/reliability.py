"""Which settings of a producer go together, as Kafka's client judges them (KIP-679)."""

import logging
from typing import Final, NamedTuple

__all__ = ["Reliability", "reliability"]

ACKS: Final = {"all": -1, -1: -1, "-1": -1, 0: 0, "0": 0, 1: 1, "1": 1}
IN_FLIGHT_MAX: Final = 5

log = logging.getLogger("oncelog.client")


class Reliability(NamedTuple):
    """The meaning of an acknowledgement: `acks` on the wire, and whether batches have sequences."""

    acks: int
    idempotent: bool


def reliability(
    acks: str | int,
    enable_idempotence: bool | None,
    retries: int,
    max_in_flight: int,
    transactional_id: str | None,
) -> Reliability:
    """Combine the configs. Raises `ValueError` where they contradict each other.

    Idempotence defaults to on (None), unless `acks` or `retries` rule it out.
    """
    if acks not in ACKS:
        raise ValueError(f"acks must be 'all', 1 or 0, not {acks!r}")
    conflict = _conflict(ACKS[acks], retries)
    if enable_idempotence and conflict:
        raise ValueError(
            f"an idempotent producer needs {conflict}; or give enable.idempotence=false"
        )
    idempotent = not conflict if enable_idempotence is None else enable_idempotence
    if idempotent and max_in_flight > IN_FLIGHT_MAX:
        raise ValueError(
            f"an idempotent producer has at most {IN_FLIGHT_MAX} requests in flight: "
            f"max.in.flight.requests.per.connection is {max_in_flight}"
        )
    if transactional_id is not None and not idempotent:
        raise ValueError(
            f"a transactional producer is idempotent, which needs {conflict}"
            if conflict
            else "a transactional producer is idempotent: leave enable.idempotence out"
        )
    if conflict and enable_idempotence is None:
        log.info("idempotence is off: it needs %s", conflict)
    return Reliability(ACKS[acks], idempotent)


def _conflict(acks: int, retries: int) -> str:
    """Return the requirement of idempotence that is not met; "" for none."""
    if acks != -1:
        return "acks=all"
    return "retries above 0" if retries == 0 else ""
