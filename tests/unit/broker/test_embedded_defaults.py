"""The defaults of an embedded broker: few, all settings of ours, and told in one table."""

import re
from pathlib import Path

from oncelog.broker.embedded import EMBEDDED_DEFAULTS
from oncelog.core.config_definition import format_value
from oncelog.core.config_keys import BROKER_KEYS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
ROW = re.compile(r"^\| `([a-z.]+)` \| (\S+) \| (\S+) \| .+ \|$", re.MULTILINE)


def test_the_table_of_defaults_is_that_of_the_code() -> None:
    rows = {name: (kafka, here) for name, kafka, here in ROW.findall(DOCUMENT.read_text())}
    assert rows == {
        name: (format_value(BROKER_KEYS[name].default), value)
        for name, value in EMBEDDED_DEFAULTS.items()
    }
