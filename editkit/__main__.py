"""``python -m editkit`` is the ``editkit`` command."""

from editkit.cli import main

main(prog_name="editkit")
