"""The group coordinator: classic consumer groups and committed offsets, as a pure machine.

See `machine.GroupMachine` for the theory of operation.
"""
