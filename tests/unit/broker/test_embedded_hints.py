"""What people try with an `EmbeddedBroker`, and the sentence that they get."""

from typing import Any

import pytest

from oncelog import EmbeddedBroker
from oncelog.testing import ControlledBroker

KINDS: list[Any] = [EmbeddedBroker, ControlledBroker]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("keyword", "told"),
    [
        ("num_partitions", 'Kafka\'s keys go into config={"num.partitions": ...}'),
        ("settings", "Kafka's keys go into config={...}"),
        ("bootstrap_servers", "it listens on 127.0.0.1, and port=9092 says where"),
        ("path", "its folder is the first argument; without one it is temporary"),
        ("datadir", "did you mean data_dir?"),
    ],
)
def test_an_unknown_argument_is_told_the_right_one(kind: Any, keyword: str, told: str) -> None:
    with pytest.raises(TypeError) as caught:
        kind(**{keyword: 1})
    assert str(caught.value) == f"EmbeddedBroker has no argument {keyword}: {told}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_dict_or_an_address_is_no_folder(kind: Any) -> None:
    with pytest.raises(TypeError, match="takes a folder first: Kafka's keys go into config="):
        kind({"num.partitions": 3})
    with pytest.raises(TypeError, match="takes a folder first, not 'localhost:9092'"):
        kind("localhost:9092")


def test_other_names_of_methods_are_told_ours() -> None:
    broker: Any = EmbeddedBroker()
    for name, told in (
        ("start", "`with` or `async with` starts and stops it"),
        ("get_bootstrap_server", "its address is bootstrap_servers"),
        ("bootstrap_serverz", "did you mean bootstrap_servers?"),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(broker, name)
        assert str(caught.value) == f"EmbeddedBroker has no {name}: {told}"
    assert not hasattr(broker, "_anything")
    with pytest.raises(RuntimeError, match="is not running: enter it by `with`"):
        _ = broker.bootstrap_servers
