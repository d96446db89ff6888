"""Sets, lists and removes the quotas of users and clients (KIP-546)."""

from collections.abc import Iterable, Mapping

from oncelog.client.admin_base import AdminBase
from oncelog.core.quotas import CLIENT_ID, DEFAULT, USER, ClientQuotaEntity
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    QuotaEntryData,
)
from oncelog.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    EntityData,
)

__all__ = ["QuotaAdmin"]

Changes = Mapping[ClientQuotaEntity, Mapping[str, float | None]]


class QuotaAdmin(AdminBase):
    """The calls of `Admin` that are about quotas."""

    async def describe_client_quotas(self) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Return all quotas of users and clients: by entity the value of each key.

        Those of an ip, which Apache Kafka may have, are left out. Raises `FatalError`:
        cluster_authorization_failed. Source: KIP-546.
        """
        request = DescribeClientQuotasRequest()

        async def call() -> dict[ClientQuotaEntity, dict[str, float]]:
            response = await self._cluster.request_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
            self._check(response.error_code, response.error_message or "")
            return {
                _entity(entry.entity): {value.key: value.value for value in entry.values}
                for entry in response.entries or ()
                if all(part.entity_type in (USER, CLIENT_ID) for part in entry.entity)
            }

        return await self._retrying(call)

    async def alter_client_quotas(self, changes: Changes, *, validate_only: bool = False) -> None:
        """Set the values of keys, and remove those whose value is None.

        Raises `FatalError` for the first entity that is refused, while the others' are changed:
        invalid_request, cluster_authorization_failed. Source: KIP-546.
        """
        request = AlterClientQuotasRequest(
            entries=tuple(
                QuotaEntryData(entity=_parts(entity), ops=tuple(_ops(values)))
                for entity, values in changes.items()
            ),
            validate_only=validate_only,
        )

        async def call() -> None:
            response = await self._ask_controller(ApiKey.ALTER_CLIENT_QUOTAS, request)
            for entity, entry in zip(changes, response.entries, strict=True):
                self._check(entry.error_code, f"{entity}: {entry.error_message or ''}")

        await self._retrying(call)


def _entity(parts: Iterable[EntityData]) -> ClientQuotaEntity:
    names = {part.entity_type: part.entity_name or DEFAULT for part in parts}
    return ClientQuotaEntity(names.get(USER), names.get(CLIENT_ID))


def _parts(entity: ClientQuotaEntity) -> tuple[EntityData, ...]:
    return tuple(
        EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
        for kind, name in entity.parts.items()
    )


def _ops(values: Mapping[str, float | None]) -> Iterable[OpData]:
    for key, value in values.items():
        yield OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
