"""Quix Streams under its exactly-once guarantee: python quix_streams.py SERVERS SOURCE TARGET."""

import sys

from quixstreams import Application

SERVERS, SOURCE, TARGET = sys.argv[1:4]
COUNT = 20

application = Application(
    broker_address=SERVERS,
    consumer_group=f"quix-{SOURCE}",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.2,
)
source = application.topic(SOURCE, value_deserializer="str")
target = application.topic(TARGET, value_serializer="str")
application.dataframe(source).apply(str.upper).to_topic(target)
application.run(count=COUNT, timeout=30)
