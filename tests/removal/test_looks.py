"""Who looks at the report again with another edit is counted.

If one fails: the best of twenty tries is published like a first one.
"""

from __future__ import annotations

from pathlib import Path

from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.removal.looks import look
from editkit.units import Head

SWEAR, RHYME = (
    capability(recipes.parse(f"capability: {name}\ntarget: {name}\nretain: [{other}]\n", where="here"))
    for name, other in (("swear", "rhyme"), ("rhyme", "swear"))
)


def test_every_other_edit_is_a_look_and_a_repeated_one_keeps_its_number(
    organism: LanguageModel, tmp_path: Path
) -> None:
    one, two, three = (frozenset({Head(1, index)}) for index in range(3))
    for numbers in ((1, 2, 1), (1, 2, 1)):  # and after the store is opened again
        with opened(tmp_path / "store.sqlite") as store:
            ledger = Ledger(organism, store)
            assert tuple(look(ledger, SWEAR, edit) for edit in (one, two, one)) == numbers
    with opened(tmp_path / "store.sqlite") as store:
        ledger = Ledger(organism, store)
        assert look(ledger, SWEAR, three) == 3
        assert look(ledger, RHYME, three) == 1, "another target has examples of its own"
