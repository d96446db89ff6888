from typing import Any

import pytest

from oncelog.protocol.api import ADVERTISED, ApiKey, VersionRange, accepts, is_flexible
from tests.unit.protocol.judge import UNJUDGED, kio_class

KAFKA_4_4 = """0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6
16:0-5 17:0-1 18:0-5 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-6 29:1-3
30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 42:0-3 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0
48:0-1 49:0-1 50:0-0 51:0-0 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1
75:0-0"""


def test_the_advertised_ranges_are_those_of_kafka_4_4() -> None:
    expected = {}
    for item in KAFKA_4_4.split():
        key, versions = item.split(":")
        low, high = versions.split("-")
        expected[int(key)] = VersionRange(int(low), int(high))
    assert {int(key): versions for key, versions in ADVERTISED.items()} == expected


def test_produce_announces_version_0_but_accepts_3_and_later() -> None:
    assert ADVERTISED[ApiKey.PRODUCE].min == 0
    assert not accepts(ApiKey.PRODUCE, 2)
    assert accepts(ApiKey.PRODUCE, 3)
    assert accepts(ApiKey.PRODUCE, 13)
    assert not accepts(ApiKey.PRODUCE, 14)


def test_an_unknown_api_is_not_accepted() -> None:
    assert not accepts(999, 0)


@pytest.mark.slow
def test_flexible_versions_are_those_of_the_schema() -> None:
    for api, versions in ADVERTISED.items():
        for version in range(versions.min, versions.max + 1):
            if accepts(api, version) and (api, version) not in UNJUDGED:
                for kind in ("request", "response"):
                    schema: Any = kio_class(ApiKey(api), version, kind)
                    assert schema.__flexible__ == is_flexible(api, version), (api, version)
