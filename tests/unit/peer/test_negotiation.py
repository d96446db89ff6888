"""What a peer announces, how it is asked, and which version is chosen."""

import pytest

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.peer.negotiation import PeerSupport, negotiate
from oncelog.protocol.api import ADVERTISED, ApiKey, VersionRange
from oncelog.protocol.codec import encode_response
from oncelog.protocol.headers import unsupported_version_response
from oncelog.protocol.messages import api_versions as schema
from oncelog.protocol.messages.api_versions import ApiVersionsRequest

NEWEST = ADVERTISED[ApiKey.API_VERSIONS].max


class Broker:
    """Answers ApiVersions up to the version that it knows."""

    def __init__(
        self, newest_version: int = NEWEST, error: ErrorCode = ErrorCode.none, body: bytes = b""
    ) -> None:
        self.newest_version = newest_version
        self.error = error
        self.body = body
        self.asked: list[int] = []

    async def send(self, api: ApiKey, version: int, request: object) -> memoryview:
        assert api is ApiKey.API_VERSIONS
        assert isinstance(request, ApiVersionsRequest)
        self.asked.append(version)
        if version > self.newest_version:
            return memoryview(unsupported_version_response(0))[4:]
        return memoryview(self.body or encode_response(api, version, 0, self.answer()))[4:]

    def answer(self) -> object:
        feature = schema.FinalizedFeatureKey(
            name="transaction.version",
            max_version_level=2,
            min_version_level=2,
        )
        key = schema.ApiVersion(api_key=ApiKey.FETCH, min_version=4, max_version=12)
        return schema.ApiVersionsResponse(
            error_code=self.error,
            api_keys=(key,),
            finalized_features_epoch=5,
            finalized_features=(feature,),
        )


async def test_versions_and_features_are_learned() -> None:
    broker = Broker()
    support = await negotiate(broker.send, "peer:1")
    assert broker.asked == [NEWEST]
    assert support.versions == {ApiKey.FETCH: VersionRange(4, 12)}
    assert support.features == {"transaction.version": 2}
    assert support.features_epoch == 5


async def test_an_old_broker_is_asked_again_with_version_zero() -> None:
    broker = Broker(newest_version=2)
    support = await negotiate(broker.send, "peer:1")
    assert broker.asked == [NEWEST, 0]
    assert support.versions == {ApiKey.FETCH: VersionRange(4, 12)}
    assert support.features == {}
    assert support.features_epoch == -1


async def test_a_broker_that_refuses_every_version_is_an_error_by_name() -> None:
    with pytest.raises(ProtocolError, match="peer:1 refuses ApiVersions") as raised:
        await negotiate(Broker(newest_version=-1).send, "peer:1")
    assert raised.value.code is ErrorCode.unsupported_version


async def test_an_error_in_the_answer_is_raised_with_its_code() -> None:
    with pytest.raises(ProtocolError, match="peer:1") as raised:
        await negotiate(Broker(error=ErrorCode.cluster_authorization_failed).send, "peer:1")
    assert raised.value.code is ErrorCode.cluster_authorization_failed


@pytest.mark.parametrize("size", [0, 1, 3])
async def test_an_answer_that_is_cut_short_breaks_the_protocol(size: int) -> None:
    with pytest.raises(ProtocolError):
        await negotiate(Broker(body=bytes(4 + size)).send, "peer:1")


OURS = ADVERTISED[ApiKey.FETCH]


@pytest.mark.parametrize(
    ("theirs", "at_most", "chosen"),
    [
        (VersionRange(0, 99), None, OURS.max),
        (VersionRange(0, 99), OURS.max - 1, OURS.max - 1),
        (VersionRange(0, OURS.max - 2), OURS.max - 1, OURS.max - 2),
        (VersionRange(OURS.min, OURS.min), None, OURS.min),
        (VersionRange(OURS.max + 1, 99), None, None),
        (VersionRange(0, OURS.min - 1), None, None),
        (VersionRange(OURS.max, 99), OURS.max - 1, None),
    ],
)
def test_the_newest_version_of_both_is_chosen(
    theirs: VersionRange, at_most: int | None, chosen: int | None
) -> None:
    support = PeerSupport(versions={ApiKey.FETCH: theirs})
    assert support.newest_common(ApiKey.FETCH, at_most) == chosen
    assert support.newest_common(ApiKey.METADATA, at_most) is None


def test_a_version_is_included_where_both_speak_it() -> None:
    support = PeerSupport(versions={ApiKey.FETCH: VersionRange(0, 99)})
    assert support.includes(ApiKey.FETCH, OURS.max)
    assert not support.includes(ApiKey.FETCH, OURS.max + 1)
    assert not support.includes(ApiKey.METADATA, 1)
