"""Writes the lines of Kafka's audit log, on the logger ``kafka.authorizer.logger``.

What is refused is INFO, what is allowed DEBUG; a decision that only filters a list is not written.
Kafka's `StandardAuthorizerData` writes the same text. Of refusals at most a limit of lines is
written in a second, with the count of the others after it: a client chooses how often it asks.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from oncelog.broker.apis.needs import Need
from oncelog.broker.net.decisions import DecisionCounts
from oncelog.core.security_limits import AUDIT_NAME_LENGTH_MAX, AUDIT_REFUSALS_PER_S_MAX
from oncelog.protocol.api import ApiKey
from oncelog.runtime.clock import Clock
from oncelog.security.authorizer import AclRules

__all__ = ["AuditLog", "Subject"]

log = logging.getLogger("kafka.authorizer.logger")

_SECOND_MS: Final = 1000


class Subject(NamedTuple):
    """Who asks, and by which request."""

    principal: str
    host: str
    api: ApiKey


class AuditLog:
    """The lines about one broker's requests; `counts` has those that are not written, too."""

    def __init__(self, clock: Clock, counts: DecisionCounts | None = None) -> None:
        self.counts = counts or DecisionCounts()
        self._clock = clock
        self._second_ms = 0.0
        """When the second began in which refusals are counted."""
        self._refusals_count = 0

    @property
    def tells_allowed(self) -> bool:
        """Whether what is allowed is written too."""
        return log.isEnabledFor(logging.DEBUG)

    def tell(
        self, rules: AclRules, subject: Subject, need: Need, name: str, count: int, *, allowed: bool
    ) -> None:
        """Write one decision: of a resource that the request names `count` times."""
        if not allowed and not self._has_room():
            return
        principal, host, api = subject
        ruling = rules.ruling(principal, host, need.operation, need.resource_type, name)
        log.log(
            logging.DEBUG if allowed else logging.INFO,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s"
            " for request = %s with resourceRefCount = %d based on rule %s",
            *(principal, "Allowed" if allowed else "Denied", need.operation.name, host),
            *(need.resource_type.title, _told(name), api.title, count, ruling.reason),
        )

    def _has_room(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._second_ms >= _SECOND_MS:
            unwritten_count = self._refusals_count - AUDIT_REFUSALS_PER_S_MAX
            self._second_ms, self._refusals_count = now_ms, 0
            if unwritten_count > 0:
                log.info("%d more refusals in one second are not written", unwritten_count)
        self._refusals_count += 1
        return self._refusals_count <= AUDIT_REFUSALS_PER_S_MAX


def _told(name: str) -> str:
    """Return a name as a line of the log can have it: a client chooses it."""
    shown = name if name.isprintable() else ascii(name)
    if len(shown) <= AUDIT_NAME_LENGTH_MAX:
        return shown
    return f"{shown[:AUDIT_NAME_LENGTH_MAX]}... ({len(name)} characters)"
