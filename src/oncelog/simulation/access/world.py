"""Users and rights in one world: who its processes are, and what its brokers make of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from oncelog.broker.broker import Broker
from oncelog.controller import layout
from oncelog.simulation.access.ledger import AccessLedger, BrokerLife
from oncelog.simulation.access.warden import AccessChange, Warden, named_late, taken
from oncelog.simulation.access.watch import AccessWatch, goes_by
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import Logged
from oncelog.simulation.history_access import AccessWrong
from oncelog.simulation.machines import Machines
from oncelog.simulation.process import Process
from oncelog.simulation.users import SCRAM, ClientLogin, login_of

__all__ = ["ServingBroker", "WorldAccess"]

HOST: Final = "10.0.3.1"


class ServingBroker(Protocol):
    """What is asked of a broker of the world."""

    name: str
    index: int
    incarnation: int
    broker: Broker | None

    @property
    def address(self) -> tuple[str, int]:
        """Its address for clients."""

    @property
    def is_serving(self) -> bool:
        """Whether its process runs and has finished its start."""


class WorldAccess:
    """The users of one run."""

    def __init__(self, world: Machines, nodes: Sequence[ServingBroker]) -> None:
        self.ledger = AccessLedger()
        self.ruled: Mapping[str, Mapping[str, Any]] = world.plan.security["ruled"]
        self._session_s = float(world.plan.security["sessions_ms"].get(SCRAM, 0)) / 1000
        self._world = world
        self._nodes = nodes
        self._warden: Warden | None = None
        self._is_restored = False
        self._seen_count = 0
        self._registered: dict[int, int] = {}
        self._told: set[tuple[str, str]] = set()

    # --- who is who

    def login_of(self, process: Process) -> ClientLogin:
        """Return who a client's process is."""
        user = process.name.partition(".")[0]

        def refused(address: tuple[str, int], since_s: float) -> None:
            for node in self._nodes:
                if node.address == address:
                    right_s = self.ledger.right_since(user, _life(node))
                    if right_s is not None and right_s <= since_s:
                        text = f"{user}, whose it is since {right_s:.3f} s"
                        self._tell(node.name, "a login with the right password is refused", text)

        return login_of(
            self._world.plan, process.name, process.rng, lambda: self.forgets(user), refused
        )

    def forgets(self, user: str) -> bool:
        """Whether a user's client lets its sessions end; none does once all rights are back."""
        return not self._is_restored and bool(self.ruled.get(user, {}).get("forgets"))

    def watch_of(self, node: ServingBroker) -> AccessWatch:
        """Return what looks at the present life of a broker."""
        return AccessWatch(
            self.ledger,
            _life(node),
            self.ruled,
            self.forgets,
            self._session_s,
            lambda: self._world.now_s,
            lambda what, text: self._tell(node.name, what, text),
        )

    # --- changes

    def begin(self, context: Callable[[Process], ClientContext]) -> None:
        """Start the warden, and have it make the users."""
        process = self._world.new_process("warden", HOST)
        warden = self._warden = Warden(
            context(process),
            self.ledger,
            self._world.plan.seed,
            tuple(self.ruled),
            [node.address for node in self._nodes],
            self._asking,
            self._answered,
        )
        warden.begin(self.ruled)
        process.spawn(warden.run())

    def is_settled(self) -> bool:
        """Whether all changes are answered."""
        return self._warden is not None and self._warden.is_idle

    def take_right(self, parameters: Mapping[str, Any], host: str) -> str | None:
        """Take a right away, or give it back; return the user."""
        user = str(parameters["client"])
        if user not in self.ruled:
            return None
        acls, are_there = taken(
            user, parameters["right"], parameters["form"], parameters["name"], host
        )
        is_there = are_there is not parameters.get("gives", False)
        self._submit(AccessChange(acls, is_there, int(parameters["broker"])))
        return user

    def take_password(self, parameters: Mapping[str, Any]) -> str | None:
        """Give a user another password or none, or the client's again; return the user."""
        user = str(parameters["client"])
        if user not in self.ruled:
            return None
        gives, removes = bool(parameters.get("gives", False)), bool(parameters["removes"])
        self._submit(AccessChange((user,), gives, int(parameters["broker"]), removes and not gives))
        return user

    def restore(self) -> None:
        """Have all users get their rights and passwords back, and look after their sessions."""
        self._is_restored = True
        if self._warden is not None:
            self._warden.restore()

    def _submit(self, change: AccessChange) -> None:
        if self._warden is not None:
            self._warden.submit(change)

    def _asking(self) -> None:
        self._registered = self._epochs()
        self._seen_count = len(self._world.history)

    def _answered(self, change: AccessChange) -> list[BrokerLife]:
        """Return the brokers that may be late; all others have to go by the change."""
        lines = self._world.history.events[self._seen_count :]
        named = {
            broker
            for line in lines
            if isinstance(line, Logged)
            for broker in named_late(line.message)
        }
        now = self._epochs()
        late = []
        for node in self._nodes:
            if node.broker is None:
                continue
            broker_id = node.broker.broker_id
            stays = now.get(broker_id, -1) == self._registered.get(broker_id, -2)
            if not stays or broker_id in named:
                late.append(_life(node))
            elif node.is_serving:
                image = node.broker.image
                if any(goes_by(image, item) is not change.is_there for item in change.items):
                    what = "a change is answered before a broker goes by it"
                    self._tell(node.name, what, change.text)
        return late

    def _epochs(self) -> dict[int, int]:
        """Return the brokers with a registration, each with its epoch."""
        found = {}
        for path, stored in self._world.store.state.list(layout.BROKERS_PREFIX).items():
            member = layout.decode_broker(path, stored.value)
            found[member.broker_id] = member.broker_epoch
        return found

    # --- the end

    def look_at_end(self) -> None:
        """Compare what all brokers go by with what is known: it outlasts restarts and elections."""
        for node in self._nodes:
            if node.broker is None or not node.is_serving:
                continue
            image = node.broker.image
            self.ledger.caught_up(_life(node), partial(goes_by, image))
            for item, is_there in self.ledger.certain(_life(node)):
                if goes_by(image, item) is not is_there:
                    text = f"{item} is {'not ' * is_there}there"
                    self._tell(node.name, "rights are not what was answered last", text)
            for acl in image.acls.values():
                if acl not in self.ledger.named():
                    self._tell(node.name, "there is an ACL that was never asked for", str(acl))

    def _tell(self, broker: str, what: str, text: str) -> None:
        """Record each kind of finding of a broker once."""
        if (broker, what) not in self._told:
            self._told.add((broker, what))
            self._world.record(AccessWrong(self._world.now_s, broker, what, text))


def _life(node: ServingBroker) -> BrokerLife:
    return node.index, node.incarnation
