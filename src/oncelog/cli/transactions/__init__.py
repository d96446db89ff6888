"""The group ``oncelog transactions``: what an operator asks about a cluster's transactions.

Everything goes through Kafka's own APIs (`oncelog.client.Admin`), so Apache Kafka answers it too.
"""
