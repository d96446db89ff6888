"""``python -m oncelog``: the command line, where the script is not on PATH."""

from oncelog.cli.main import main

if __name__ == "__main__":
    main(prog_name="oncelog")
