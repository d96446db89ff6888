"""The faults of logins that are set."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.testing.fault import ArmedFault

__all__ = ["LoginFaults"]


@dataclass(slots=True)
class LoginFaults:
    """Those that are set. Only the broker's loop touches them."""

    refusals: list[tuple[ArmedFault, str | None]] = field(default_factory=list)
    """Each with the user that it is for; None is any."""
    drops: list[ArmedFault] = field(default_factory=list)
    brokers_user: str | None = None
    """Who brokers are to each other: no fault is for them."""

    def refuses(self, user: str) -> bool:
        """Whether this login is refused; it is counted."""
        if user == self.brokers_user:
            return False
        for entry in self.refusals:
            fault, concerned = entry
            if concerned in (None, user) and fault.strikes():
                if fault.is_spent:
                    self.refusals.remove(entry)
                    fault.finish()
                return True
        return False

    def drops_renewal(self, user: str) -> bool:
        """Whether this user's connection is dropped where it would renew its session."""
        if user == self.brokers_user:
            return False
        for fault in self.drops:
            if fault.strikes():
                if fault.is_spent:
                    self.drops.remove(fault)
                    fault.finish()
                return True
        return False

    def clear(self) -> None:
        """Take all of them back."""
        self.refusals.clear()
        self.drops.clear()

    def drop(self, gone: ArmedFault) -> None:
        """Take a fault back."""
        self.refusals = [entry for entry in self.refusals if entry[0] is not gone]
        self.drops = [fault for fault in self.drops if fault is not gone]
