"""Decides changes of the quotas of users and clients (KIP-546).

The rules and errors are those of Kafka's `ClientQuotaControlManager`: each entity's change is made
or refused by itself, and one that is named twice in a request is refused. Rates of connections (of
an ip) are not there and refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from oncelog.controller.decision import ControllerDecision, ControllerNotice, DecisionContext, Put
from oncelog.controller.events import AlterClientQuotas, QuotaAlteration, QuotaChange, QuotaOutcome
from oncelog.controller.image import MetadataImage
from oncelog.controller.quota_layout import encode_quotas, quota_path
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT64_MAX
from oncelog.core.quotas import CLIENT_ID, DEFAULT, IP, QUOTA_KEYS, USER, ClientQuotaEntity
from oncelog.core.security_limits import CLIENT_QUOTAS_COUNT_MAX, QUOTA_NAME_LENGTH_MAX

__all__ = ["alter_client_quotas"]


def alter_client_quotas(
    image: MetadataImage, event: AlterClientQuotas, _: DecisionContext
) -> ControllerDecision[tuple[QuotaOutcome, ...]]:
    """Change what can be changed."""
    named = [frozenset(one.entity) for one in event.alterations]
    outcomes: list[QuotaOutcome] = []
    writes: list[Put] = []
    notices: list[ControllerNotice] = []
    room = CLIENT_QUOTAS_COUNT_MAX - len(image.client_quotas)
    for alteration, entity in zip(event.alterations, named, strict=True):
        problem = next(_problems(alteration, is_named_again=named.count(entity) > 1), None)
        if problem is not None:
            outcomes.append(QuotaOutcome(ErrorCode.invalid_request, problem))
            continue
        whose = _entity(alteration)
        before = image.client_quotas.get(whose, {})
        after = _changed(before, alteration.changes)
        is_new = after and not before
        if is_new and room <= 0:
            problem = f"There are {CLIENT_QUOTAS_COUNT_MAX} quotas already: remove some first"
            outcomes.append(QuotaOutcome(ErrorCode.policy_violation, problem))
            continue
        outcomes.append(QuotaOutcome())
        if after != before and not event.validate_only:
            room -= bool(is_new)
            writes.append(Put(quota_path(whose), encode_quotas(after) if after else None))
            notices.append(ControllerNotice(f"the quotas of {whose} are now {_told(after)}"))
    return ControllerDecision(tuple(outcomes), tuple(writes), tuple(notices))


def _entity(alteration: QuotaAlteration) -> ClientQuotaEntity:
    names = {kind: DEFAULT if name is None else name for kind, name in alteration.entity}
    return ClientQuotaEntity(names.get(USER), names.get(CLIENT_ID))


def _problems(alteration: QuotaAlteration, *, is_named_again: bool) -> Iterator[str]:
    kinds = [kind for kind, _ in alteration.entity]
    if not kinds:
        yield "Invalid empty client quota entity"
    for kind, name in alteration.entity:
        if kinds.count(kind) > 1:
            yield f"Invalid client quota entity, duplicate entity entry {kind}"
        if kind not in (USER, CLIENT_ID, IP):
            yield f"Unhandled client quota entity type: {kind}"
        if name == DEFAULT:
            yield f"Empty {kind} not supported"
        if name is not None and len(name) > QUOTA_NAME_LENGTH_MAX:
            yield f"The name of a {kind} has at most {QUOTA_NAME_LENGTH_MAX} characters"
    if IP in kinds:
        if len(kinds) > 1:
            yield (
                "Invalid quota entity combination, IP entity should not be combined with User or "
                "ClientId"
            )
        yield "Quotas of an ip, which are rates of connections, are not supported"
    if is_named_again:
        yield f"Ignoring duplicate entity {_entity(alteration)}"
    yield from _problems_of_changes(alteration.changes)


def _problems_of_changes(changes: Sequence[QuotaChange]) -> Iterator[str]:
    keys = [change.key for change in changes]
    for key, text in changes:
        if keys.count(key) > 1:
            yield f"Duplicate quota key {key} not updating quota for this entity"
        elif text is not None and (problem := _problem_of(key, _number(text))):
            yield problem


def _problem_of(key: str, value: float | None) -> str | None:
    if key not in QUOTA_KEYS:
        return f"Invalid configuration key {key}"
    if value is None:
        return f"Quota {key} must be a number"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    if QUOTA_KEYS[key] and value > INT64_MAX:
        return f"Proposed value for {key} is too large for a LONG."
    if QUOTA_KEYS[key] and value % 1 > 1e-6:
        return f"{key} cannot be a fractional value."
    return None


def _number(text: str) -> float | None:
    """Return a number; None of what is none, or without an end."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _changed(before: Mapping[str, float], changes: Sequence[QuotaChange]) -> dict[str, float]:
    after = dict(before)
    for key, text in changes:
        if text is None:
            after.pop(key, None)
        else:
            after[key] = float(text)
    return after


def _told(quotas: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value:g}" for key, value in sorted(quotas.items())) or "none"
