"""The command line: ``oncelog serve`` and its sisters."""
