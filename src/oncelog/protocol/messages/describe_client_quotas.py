"""DescribeClientQuotas."""

from oncelog.core.errors import ErrorCode
from oncelog.core.values import message
from oncelog.protocol.fields import Boolean, Error, Float64, Int8, Int32, RequestFor, String


@message
class ComponentData:
    """An element of `components` in DescribeClientQuotasRequest."""

    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = None


@message
class DescribeClientQuotasRequest(RequestFor["DescribeClientQuotasResponse"]):
    """DescribeClientQuotas, versions 0 to 1."""

    components: tuple[ComponentData, ...] = ()
    strict: Boolean = False


@message
class EntityData:
    """An element of `entity` in EntryData."""

    entity_type: String = ""
    entity_name: String | None = None


@message
class ValueData:
    """An element of `values` in EntryData."""

    key: String = ""
    value: Float64 = 0.0


@message
class EntryData:
    """An element of `entries` in DescribeClientQuotasResponse."""

    entity: tuple[EntityData, ...] = ()
    values: tuple[ValueData, ...] = ()


@message
class DescribeClientQuotasResponse:
    """DescribeClientQuotas's response."""

    throttle_time_ms: Int32 = 0
    error_code: Error = ErrorCode.none
    error_message: String | None = None
    entries: tuple[EntryData, ...] | None = ()
