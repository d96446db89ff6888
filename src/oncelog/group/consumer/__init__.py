"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members reconcile.

The group has an epoch, which grows whenever what its members are subscribed to changes. For an
epoch the coordinator makes a *target assignment* (`target`, `assignors`). Each member moves towards
its target at its own heartbeats (`reconciliation`): it gives up what is not its own any more, says
so, and is then given what nobody else owns. So no two members own a partition at a time (INV-8).
All of it is in the log, a record per fact (`records`).
"""
