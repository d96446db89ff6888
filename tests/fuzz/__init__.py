"""Bad frames against the broker: `python -m tests.fuzz --frames N --seed S`.

`corpus` makes valid requests of every API and version that is served, `batches` record batches,
good and bad; `mutate` spoils them. `target` is a whole broker in this process on virtual time and
in-memory connections (fast), `serve` a real `oncelog serve` behind sockets. `judge` says what an
answer may be. `campaign` runs them and counts.
"""
