"""Tools for tests of applications: a broker with injected faults, and a pytest plugin.

docs/testing.md is the guide. The names are imported when first used, because pytest imports
`oncelog.testing.plugin`, and this with it, in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.core.errors import ErrorCode
    from oncelog.protocol.api import ApiKey
    from oncelog.testing.broker import ControlledBroker
    from oncelog.testing.cluster import ControlledCluster
    from oncelog.testing.fault import ArmedFault
    from oncelog.testing.faults import Faults
    from oncelog.testing.moments import Moment

__all__ = [
    "ApiKey",
    "ArmedFault",
    "ControlledBroker",
    "ControlledCluster",
    "ErrorCode",
    "Faults",
    "Moment",
]

_PLACES = {
    "ApiKey": "oncelog.protocol.api",
    "ControlledBroker": "oncelog.testing.broker",
    "ControlledCluster": "oncelog.testing.cluster",
    "ErrorCode": "oncelog.core.errors",
    "ArmedFault": "oncelog.testing.fault",
    "Faults": "oncelog.testing.faults",
    "Moment": "oncelog.testing.moments",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module 'oncelog.testing' has no attribute {name!r}")
    value: object = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
