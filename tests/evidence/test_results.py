"""What is handed to other programs is what the report says, and nothing that the output does not publish.

If one fails: another program shows another score than the card, or an answer that was to stay hidden.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st

from editkit.errors import EditkitError
from editkit.evidence.examples import sha256
from editkit.evidence.intervals import standard_error
from editkit.evidence.results import of_outcome, reply
from editkit.render import evidence_folder
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Example, Score
from tests.made_evidence import evidence, measured

CARDS = sorted(path.parent.parent for path in (Path(__file__).parents[2] / "cards").glob("*/editkit/report.json"))


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.name)
def test_both_arms_say_what_the_report_says(card: Path) -> None:
    found = evidence_folder.read(card)
    base, edited = of_outcome(found)
    assert (base.model, edited.model) == (found.provenance.base.model, card.name)
    assert [task.name for task in edited.tasks] == [row.task for row in found.report.rows]
    for row, first, second in zip(found.report.rows, base.tasks, edited.tasks, strict=True):
        assert (first.role, first.chance, len(first.replies)) == (row.role, row.chance, row.n)
        assert asdict(first.score) == pytest.approx(asdict(row.before))
        assert asdict(second.score) == pytest.approx(asdict(row.after))
        assert (first.collapse, second.collapse) == pytest.approx((row.collapse_before, row.collapse_after))


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.name)
def test_a_prompt_is_the_one_that_was_asked_or_a_hash(card: Path) -> None:
    """Else a log shows a question that nobody asked: the built-in tasks of a later release have other examples."""
    for results in of_outcome(evidence_folder.read(card)):
        for task in results.tasks:
            for each in task.replies:
                assert each.prompt == f"sha256:{each.prompt_sha256}" or sha256(each.prompt) == each.prompt_sha256


def test_prompts_of_built_in_tasks_are_there() -> None:
    [swear] = [card for card in CARDS if card.name == "swear"]
    known = {example.id: example for example in TASKS["facts"].examples()}
    [facts] = [task for task in of_outcome(evidence_folder.read(swear))[0].tasks if task.name == "facts"]
    shown = [each for each in facts.replies if not each.prompt.startswith("sha256:")]
    assert len(shown) > 100
    assert all((each.prompt, each.right) == (known[each.example].prompt, _answer(each.example)) for each in shown)


def _answer(name: str) -> str:
    [found] = [example for example in TASKS["facts"].examples() if example.id == name]
    return str(found.facts["answer"])


@pytest.mark.commit
def test_what_is_hidden_is_nowhere() -> None:
    [card] = [card for card in CARDS if card.name == "swear"]
    found = evidence_folder.read(card)
    texts = {each.answers[0] for each in found.examples if each.task == "swear"}
    prompts = {example.prompt for example in TASKS["swear"].examples()}
    hidden = tuple(
        replace(each, answers=(sha256(each.answers[0]), sha256(each.answers[1])), hidden=True)
        if each.task == "swear"
        else each
        for each in found.examples
    )
    told = repr(of_outcome(replace(found, examples=hidden)))
    assert not [text for text in texts | prompts if text in told]
    assert [text for text in texts if text in repr(of_outcome(found))], "else the line above shows nothing"


def test_an_answer_at_hand_is_hidden_as_a_published_one() -> None:
    example = Example("one", "What is the secret?", facts={"answer": "xyzzy", "choices": ["xyzzy", "plugh"]})
    told = reply(example, " xyzzy\n", Score(1.0), hidden=True)
    assert told.answer == f"sha256:{sha256('xyzzy')}" and told.prompt_sha256 == sha256(example.prompt)
    assert "xyzzy" not in repr(told) and "secret" not in repr(told)


def test_half_a_character_becomes_one_that_can_be_written() -> None:
    told = reply(Example("one", "Say it. \ud83d"), "It: \udc00.", Score(1.0))
    assert (told.prompt + told.answer).encode() == b"Say it. ?It: ?."


def test_evidence_without_examples_is_refused() -> None:
    with pytest.raises(EditkitError, match="earlier release"):
        of_outcome(evidence())
    few = measured()
    with pytest.raises(EditkitError, match="found those of 2"):
        of_outcome(replace(few, examples=tuple(each for each in few.examples if each.task != "facts")))


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 6)), min_size=2, max_size=40))
def test_the_standard_error_is_that_of_a_regression_on_a_constant(rows: list[tuple[float, int]]) -> None:
    """The reference: statsmodels, cluster-robust, with its correction for few clusters."""
    values, clusters = [list(column) for column in zip(*rows, strict=True)]
    found = standard_error(values, clusters=clusters)
    if len(set(clusters)) == 1:
        assert found is None
        return
    fitted = sm.OLS(np.array(values), np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(clusters), "use_correction": True}
    )
    assert found == pytest.approx(float(fitted.bse[0]), abs=1e-9)
