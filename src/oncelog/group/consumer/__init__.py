"""Consumer groups of the KIP-848 protocol: the coordinator assigns, members reconcile.

A group has an epoch, which increases whenever its members' subscriptions change. For each epoch the
coordinator computes a *target assignment* (`target`, `assignors`). Each member moves towards its
target with its own heartbeats (`reconciliation`): it revokes the partitions that it loses, reports
that, and then gets partitions that no other member owns. So no two members own a partition at a
time (INV-8). All of this state is in the log (`records`).
"""
