"""Our own consumer as a member of a group, with or without transactions.

`run` reads and commits. It pauses partitions, leaves and comes back, changes its subscription,
does not poll for too long, and now and then leaves a consumer behind without closing it. `run_copy`
copies as `copying` does, as a member whose offsets the group refuses once it went on without it
(KIP-447). Both settle when nothing has come for longer than a dead member's session.

Parameters: those of `MemberReader`; `isolation`; `commits`, "auto" or "manual"; `vice`, how often
it does something unusual; `think_s`; for `run_copy` those of `copying` as well.
"""

from __future__ import annotations

from typing import Final

from oncelog.simulation.context import QUIET_SESSIONS_COUNT, ClientContext
from oncelog.simulation.workloads.copying import Copier, copy_once
from oncelog.simulation.workloads.journal import Journal, supervise
from oncelog.simulation.workloads.member_reader import MemberReader, topics_read
from oncelog.simulation.workloads.reader import Isolation

__all__ = ["run", "run_copy"]

BATCHES: Final = (1, 10, 500)
VICES: Final = ("leave", "reopen", "dally", "abandon", "narrow", "pause", "pause")
SETTLE_GRACE_S: Final = 2.0


async def run(context: ClientContext) -> None:
    """Read as a member until it is time to settle, then to the end."""
    await supervise(context, _read)


async def run_copy(context: ClientContext) -> None:
    """Copy as a member until it is time to settle, then to the end."""
    await supervise(context, _copy)


async def _read(journal: Journal) -> None:
    isolation = journal.text("isolation", "read_committed")
    chosen: Isolation = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    reader = MemberReader(
        journal,
        chosen,
        journal.text("group_id", "ours"),
        topics_read(journal),
        journal.text("commits", "auto"),
    )
    quiet = _Quiet(journal)
    while not quiet.is_reached:
        rows = await reader.poll(500 if journal.stopping else journal.rng.choice(BATCHES))
        if journal.stopping:
            _undo(reader)
            await quiet.look(reader, is_idle=not rows)
            continue
        if reader.commits == "manual" and journal.chance(0.3):
            await reader.commit()
        if journal.chance(journal.number("vice", 0.06)):
            await _misbehave(journal, reader)
        await journal.think()
    if reader.commits == "manual":
        await reader.commit()


async def _copy(journal: Journal) -> None:
    group_id = journal.text("group_id", "our-copies")
    sources = topics_read(journal, "sources")
    reader = MemberReader(journal, "read_committed", group_id, sources, "never")
    copier = Copier(journal, reader, reader.group_metadata)
    quiet = _Quiet(journal)
    while not quiet.is_reached:
        if journal.stopping:
            _undo(reader)
        rows = await copy_once(copier)
        if journal.stopping:
            await quiet.look(reader, is_idle=not rows and copier.is_positioned)
            continue
        if journal.chance(journal.number("vice", 0.06)):
            await _misbehave(journal, reader)
        await journal.think()
    await copier.session.close()


class _Quiet:
    """Tells when a member and its group have had nothing to do for long enough."""

    def __init__(self, journal: Journal) -> None:
        self.is_reached = False
        self._journal = journal
        session_s = journal.number("session_timeout_ms", 4_000) / 1000
        self._settle_s = QUIET_SESSIONS_COUNT * session_s + SETTLE_GRACE_S
        self._since_s = -1.0

    async def look(self, reader: MemberReader, *, is_idle: bool) -> None:
        """Look whether everything was read, after a poll."""
        if not is_idle or not reader.has_everything() or await reader.lag():
            self._since_s = -1.0
            return
        now_s = self._journal.now_s()
        if self._since_s < 0:
            self._since_s = now_s
        self.is_reached = now_s - self._since_s >= self._settle_s


def _undo(reader: MemberReader) -> None:
    """Read everything again."""
    reader.consumer.resume(reader.consumer.paused())
    if set(reader.consumer.subscription()) not in (set(), set(reader.topics)):
        reader.subscribe_to(reader.topics)


async def _misbehave(journal: Journal, reader: MemberReader) -> None:
    """Do something that an application does seldom."""
    what = journal.rng.choice(VICES)
    is_static = journal.context.parameters.get("instance_id") is not None
    if what == "leave":
        await reader.leave_and_return()
    elif what == "reopen" or (what == "abandon" and is_static):
        await reader.reopen()
    elif what == "abandon":
        reader.abandon()
    elif what == "dally":
        limit_s = journal.number("max_poll_interval_ms", 5_000) / 1000
        await journal.context.clock.sleep(1000 * limit_s * journal.rng.uniform(0.5, 1.5))
    elif what == "narrow" and not journal.context.parameters.get("by_pattern"):
        reader.subscribe_to(reader.topics[: journal.rng.randint(1, len(reader.topics))])
    elif what == "pause":
        owned = reader.consumer.assignment()
        reader.consumer.resume(reader.consumer.paused())
        if owned and journal.chance(0.6):
            reader.consumer.pause(journal.rng.sample(owned, journal.rng.randint(1, len(owned))))
