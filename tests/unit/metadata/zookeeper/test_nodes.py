"""Paths, addresses and names, as ZooKeeper has them."""

from __future__ import annotations

import pytest

from oncelog.core.errors import OncelogError
from oncelog.metadata.zookeeper.nodes import (
    ancestors_of,
    from_node_path,
    parent_of,
    parse_servers,
    session_name,
    to_node_path,
)


def test_an_address_names_servers_and_a_chroot() -> None:
    assert parse_servers("a:1, b:2,[::1]:3/x/y/") == ("a:1,b:2,[::1]:3", "/x/y")
    assert parse_servers("a") == ("a", "")
    assert parse_servers("a/") == ("a", "")


@pytest.mark.parametrize("text", ["", "/x", "a:b", "a:1,", "a:0", "a/x//y", "a/./x", "u@a:1"])
def test_what_is_no_address_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(OncelogError, match="is not HOST:PORT,HOST:PORT/CHROOT"):
        parse_servers(text)


@pytest.mark.parametrize("path", ["/a/b", "/a/.", "/a/..", "/a/", "/a/%2E", "/a/.b", "/a//b"])
def test_every_path_has_a_node_that_zookeeper_takes(path: str) -> None:
    node = to_node_path(path)
    assert not {"", ".", ".."} & set(node.split("/")[1:])
    assert from_node_path(node) == path


def test_the_nodes_above_are_named_from_the_highest() -> None:
    assert ancestors_of("/a/b/c") == ["/a", "/a/b"]
    assert ancestors_of("/a") == []
    assert parent_of("/a/b") == "/a"
    assert parent_of("/a") == ""


def test_a_session_is_named_as_in_zookeepers_tools() -> None:
    assert session_name(0x1000_00F0) == "0x100000f0"
    assert session_name(-1) == "0xffffffffffffffff"
    assert session_name(0) == ""
