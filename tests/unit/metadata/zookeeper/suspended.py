"""A process with a session whose value `/alive` is bound to it: `python -m ... CONNECT`.

It prints a line once the value is written, and one when it knows that the session has ended.
"""

import asyncio
import sys

from oncelog.metadata.store import Write
from oncelog.metadata.zookeeper import ZooKeeperStore

SESSION_MS = 1_000


async def main(connect: str) -> None:
    store = ZooKeeperStore(connect, session_timeout_ms=SESSION_MS)
    session = await store.open_session(SESSION_MS)
    await store.write_all([Write("/alive", b"1", 0, session.session_id)])
    print("bound", flush=True)
    await session.wait_ended()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
