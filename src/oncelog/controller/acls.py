"""Decides which ACLs are set and which are deleted (KIP-11, KIP-290).

The rules and errors are those of Kafka's `AclControlManager`: each ACL is set or refused by itself,
each filter deletes what it selects of the ACLs before the request. Limits are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from oncelog.controller.acl_layout import acl_id, acl_path, encode_acl
from oncelog.controller.decision import (
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.events import AclDeletion, AclOutcome, CreateAcls, DeleteAcls
from oncelog.controller.image import MetadataImage
from oncelog.core.acl import Acl, AclFilter, problem_of_acl, problem_of_filter
from oncelog.core.errors import ErrorCode
from oncelog.core.security_limits import (
    ACL_COMPARISONS_COUNT_MAX,
    ACLS_COUNT_MAX,
    ACLS_DELETED_LENGTH_MAX,
)

__all__ = ["create_acls", "delete_acls"]

_NAMED_COUNT_MAX: Final = 10
"""ACLs that the log names of one change; the others are counted."""

_INVALID: Final = ErrorCode.invalid_request
_FULL: Final = f"There are {ACLS_COUNT_MAX} ACLs already."
_TOO_MANY: Final = "Too many ACLs would be deleted by one request."
_TOO_LONG: Final = "Too many filters with an open part in one request."


def create_acls(
    image: MetadataImage, event: CreateAcls, context: DecisionContext
) -> ControllerDecision[tuple[AclOutcome, ...]]:
    """Set those that can be set; one that is there stays."""
    outcomes: list[AclOutcome] = []
    fresh: dict[str, Acl] = {}
    for acl in event.acls:
        problem = problem_of_acl(acl)
        if problem is not None:
            outcomes.append(AclOutcome(_INVALID, problem))
            continue
        found_id = acl_id(acl)
        if found_id not in image.acls and found_id not in fresh:
            if len(image.acls) + len(fresh) >= ACLS_COUNT_MAX:
                outcomes.append(AclOutcome(ErrorCode.policy_violation, _FULL))
                continue
            fresh[found_id] = acl
        outcomes.append(AclOutcome())
    # A large change is written in several steps: what denies comes first.
    ordered = sorted(fresh.items(), key=lambda item: (item[1].permission, item[1]))
    writes = tuple(Put(acl_path(found_id), encode_acl(acl)) for found_id, acl in ordered)
    return ControllerDecision(tuple(outcomes), writes, _told("added", [acl for _, acl in ordered]))


def delete_acls(
    image: MetadataImage, event: DeleteAcls, context: DecisionContext
) -> ControllerDecision[tuple[AclDeletion, ...]]:
    """Delete what the filters select; one ACL may be among the deleted ones of several."""
    deletions: list[AclDeletion] = []
    gone: dict[str, Acl] = {}
    left_count, left_length = ACL_COMPARISONS_COUNT_MAX, ACLS_DELETED_LENGTH_MAX
    for chosen in event.filters:
        problem = problem_of_filter(chosen)
        exact = None if problem else _exact(chosen)
        if exact is None and problem is None:
            left_count -= len(image.acls)
            problem = _TOO_LONG if left_count < 0 else None
        if problem is not None:
            deletions.append(AclDeletion(_INVALID, problem))
            continue
        found = dict(_selected(image.acls, chosen, exact))
        left_length -= sum(_length(acl) for acl in found.values())
        if left_length < 0:
            deletions.append(AclDeletion(_INVALID, _TOO_MANY))
            continue
        gone |= found
        deletions.append(AclDeletion(acls=tuple(sorted(found.values()))))
    # What allows goes first, as above.
    ordered = sorted(gone.items(), key=lambda item: (-item[1].permission, item[1]))
    writes = tuple(Put(acl_path(found_id), None) for found_id, _ in ordered)
    return ControllerDecision(
        tuple(deletions), writes, _told("removed", [acl for _, acl in ordered])
    )


def _exact(chosen: AclFilter) -> Acl | None:
    """Return the one ACL that a filter can select; None if it may select several."""
    if chosen.name is None or chosen.principal is None or chosen.host is None:
        return None
    acl = Acl(
        chosen.resource_type,
        chosen.name,
        chosen.pattern_type,
        chosen.principal,
        chosen.host,
        chosen.operation,
        chosen.permission,
    )
    return acl if problem_of_acl(acl) is None else None


def _selected(
    acls: Mapping[str, Acl], chosen: AclFilter, exact: Acl | None
) -> Iterable[tuple[str, Acl]]:
    if exact is None:
        return ((found_id, acl) for found_id, acl in acls.items() if chosen.matches(acl))
    found_id = acl_id(exact)
    return [(found_id, exact)] if found_id in acls else []


def _length(acl: Acl) -> int:
    return len(acl.name) + len(acl.principal) + len(acl.host)


def _told(verb: str, acls: Sequence[Acl]) -> tuple[ControllerNotice, ...]:
    """Return the lines of the log about a change."""

    def lines() -> Iterator[str]:
        for acl in acls[:_NAMED_COUNT_MAX]:
            yield f"{verb} an ACL: {acl.sentence}"
        if len(acls) > _NAMED_COUNT_MAX:
            yield f"{verb} {len(acls) - _NAMED_COUNT_MAX} more ACLs"

    return tuple(map(ControllerNotice, lines()))
