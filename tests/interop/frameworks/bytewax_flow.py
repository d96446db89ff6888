"""A Bytewax dataflow: python bytewax_flow.py SERVERS SOURCE TARGET."""

import sys

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

SERVERS, SOURCE, TARGET = sys.argv[1:4]

flow = Dataflow("upper")
found = kop.input("in", flow, brokers=[SERVERS], topics=[SOURCE], tail=False)
upper = op.map("upper", found.oks, lambda message: KafkaSinkMessage(None, message.value.upper()))
kop.output("out", upper, brokers=[SERVERS], topic=TARGET)
run_main(flow)
