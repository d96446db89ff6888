"""Replicas of partitions that this broker shares with others.

`isr` asks the controller for the in-sync replicas of the partitions that this broker leads;
`fetchers` fetch for those that follow another broker: `fetcher` is one connection to one leader,
`session` its fetch session. The rules are in `oncelog.replication`. A lone broker imports nothing
of this package.
"""
