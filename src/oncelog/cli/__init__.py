"""The command line: ``oncelog serve`` and the other commands."""
