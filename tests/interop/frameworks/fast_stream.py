"""FastStream on confluent-kafka: python fast_stream.py SERVERS SOURCE TARGET."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

SERVERS, SOURCE, TARGET = sys.argv[1:4]
COUNT = 20

broker = KafkaBroker(SERVERS)
application = FastStream(broker)
seen = 0


@broker.subscriber(SOURCE, group_id=f"fast-{SOURCE}", auto_offset_reset="earliest")
@broker.publisher(TARGET)
async def handle(message: str) -> str:
    global seen
    seen += 1
    if seen == COUNT:
        application.exit()
    return message.upper()


asyncio.run(application.run())
