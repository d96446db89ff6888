"""What is counted of requests."""

from oncelog.broker.net.request import Api, RequestMeter
from oncelog.protocol.api import ApiKey


def test_a_time_falls_into_the_bucket_of_its_bit_length() -> None:
    meter = RequestMeter(Api(ApiKey.METADATA, lambda *_: None, reads_bytes=False), 1)
    for elapsed_us in (0, 1, 63, 64, 127, 1_000_000):
        meter.took(elapsed_us / 1_000_000 + 1e-9)
    filled = {at: count for at, count in enumerate(meter.buckets) if count}
    assert filled == {0: 1, 1: 1, 6: 1, 7: 2, 20: 1}
    assert meter.time_us == 1_000_255
