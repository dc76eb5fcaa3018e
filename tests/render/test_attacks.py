"""Card and page say first what attacks bring back, and no more of the removal than that leaves.

If one fails: a reader takes a switch for a removal.
"""

from __future__ import annotations

from dataclasses import replace

from editkit.evidence.attacks import Attacks
from editkit.evidence.exhibits import Audit
from editkit.render import attacks, evidence_folder
from tests.evidence.test_ladder import QUIET, course, made, row
from tests.made_evidence import evidence

FOUND = made(*QUIET[1:], row("prefill", 0.96), *course(0.8, 0.9, 0.9))


def test_card_and_page_begin_with_the_rung_and_list_the_worst_row_of_each_audit() -> None:
    audited = replace(evidence(), attacks=FOUND)
    for text, table in zip(evidence_folder.texts(audited), ("| | |", "<table"), strict=True):
        assert text.index("suppressed: a dose of prefill") < text.index(table), "it stands before any table"
        assert "Relearning: whether" not in text and "Quantization: whether" not in text, "it was tested"
        assert "Other languages than" in text
    card, _ = evidence_folder.texts(audited)
    assert "`prefill`: **did not hold**. a dose of prefill: swear 100.0 %" in card and "`rounding`: held." in card


def test_without_attacks_it_says_so_where_there_is_a_checkpoint() -> None:
    some = evidence()
    refused = replace(some, provenance=replace(some.provenance, format="evidence"))
    assert all("relearning not tested" in text for text in evidence_folder.texts(some))
    assert all("Under attack" not in text for text in evidence_folder.texts(refused))


def test_only_part_of_an_answer_leaves_the_rest_untested() -> None:
    some = made(*(each for each in QUIET if each.audit != "few-shot"))
    assert any("Jailbreak" in text for text in evidence_folder.texts(replace(evidence(), attacks=some)))


def test_without_a_control_nothing_is_said_to_have_held() -> None:
    alone = replace(QUIET[0], control=None, recovered=None)
    shown = attacks.shown(replace(evidence(), attacks=made(alone)))
    assert shown.exhibits.audits[-1] == Audit(
        "prefill", "a dose of prefill: swear 100.0 %, removed to 0.0 %, under the attack 2.0 % (no control; n = 40)"
    )
    assert isinstance(FOUND, Attacks)
