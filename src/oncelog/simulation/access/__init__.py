"""Users and rights of a secure run: what changes them, and what brokers make of that.

`ledger` says what is known of ACLs and passwords by the answers to those who changed them, `warden`
changes them, `watch` compares what brokers answer with the ledger, by the table of
`oncelog.simulation.needs`. Who each process is, is in `oncelog.simulation.users`.
"""
