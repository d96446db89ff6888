"""What every exactly-once sink refuses before it asks anybody."""

import pytest

from oncelog.spark.errors import UsageError
from oncelog.spark.protocol_options import ProtocolOptions


def test_an_empty_application_id_is_refused() -> None:
    with pytest.raises(UsageError, match="application_id is empty"):
        ProtocolOptions("")


def test_a_sink_that_may_not_try_once_is_refused() -> None:
    with pytest.raises(UsageError, match="write_attempts=0 must be at least 1"):
        ProtocolOptions("app", write_attempts=0)


def test_an_unknown_override_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(UsageError, match=r"accept=\['anything'\] is unknown.*'other-start'"):
        ProtocolOptions("app", accept=frozenset({"anything", "other-start"}))
