"""What the metadata store holds, decoded."""

import pytest

from oncelog.controller import layout
from oncelog.controller.contents import Contents


@pytest.mark.parametrize("group_id", ["g", "", "a/b", "with space", "%2F", "ümlaut", "..", "\x00"])
def test_any_group_id_can_have_settings(group_id: str) -> None:
    contents = Contents()
    path = layout.group_config_path(group_id)
    assert "/" not in path.removeprefix(layout.GROUP_CONFIGS_PREFIX)
    contents.take(path, layout.encode_config({"k": "v"}))
    assert contents.group_configs == {group_id: {"k": "v"}}
    contents.take(path, None)
    assert contents.group_configs == {}


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[1]", b"null", b'"text"'])
def test_settings_that_are_no_mapping_are_damage(value: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        Contents().take(layout.group_config_path("g"), value)
