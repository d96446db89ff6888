"""AlterClientQuotas."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Float64, Int32, RequestFor, String
from oncelog.protocol.messages.describe_client_quotas import EntityData


@message
class OpData:
    """An element of `ops` in QuotaEntryData."""

    key: String = ""
    value: Float64 = 0.0
    remove: Boolean = False


@message
class QuotaEntryData:
    """An element of `entries` in AlterClientQuotasRequest."""

    entity: tuple[EntityData, ...] = ()
    ops: tuple[OpData, ...] = ()


@message
class AlterClientQuotasRequest(RequestFor["AlterClientQuotasResponse"]):
    """AlterClientQuotas, versions 0 to 1."""

    entries: tuple[QuotaEntryData, ...] = ()
    validate_only: Boolean = False


@message
class QuotaEntryDataResponse:
    """An element of `entries` in AlterClientQuotasResponse."""

    error_code: Error = ErrorCode.none
    error_message: String | None = None
    entity: tuple[EntityData, ...] = ()


@message
class AlterClientQuotasResponse:
    """AlterClientQuotas's response."""

    throttle_time_ms: Int32 = 0
    entries: tuple[QuotaEntryDataResponse, ...] = ()
