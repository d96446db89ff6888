"""A broker in the cluster: what it knows of the metadata, and what it has applied of it.

It writes nothing to the store: only the controller does.
"""
