"""``python -m oncelog`` is the command ``oncelog``."""

from oncelog.cli.main import main

main(prog_name="oncelog")
