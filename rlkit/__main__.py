"""`python -m rlkit` is the command `rlkit`."""

from rlkit.cli import app

if __name__ == "__main__":
    app(prog_name="rlkit")
