"""For tests of applications: a broker whose faults the test chooses, and a plugin for pytest.

`docs/testing.md` is the guide. `oncelog.testing.plugin` is loaded by pytest itself; everything else
works without pytest.
"""

from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from oncelog.testing.broker import ControlledBroker
from oncelog.testing.fault import Fault
from oncelog.testing.faults import Faults
from oncelog.testing.moments import Moment

__all__ = ["ApiKey", "ControlledBroker", "ErrorCode", "Fault", "Faults", "Moment"]
