"""Attacks see what is hidden, see nothing where there is nothing, and leave the model as it was.

If one fails: a card says that a removal holds which any fine-tuning undoes, or that one was undone which was not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch

from editkit.audits import AUDITS, rounding
from editkit.audits.course import Taught
from editkit.audits.relearning import WAYS
from editkit.audits.run import audited
from editkit.audits.subject import Lesson, Sample, Subject, mean, permuted, subject_of
from editkit.audits.weights import changed, linear, slices
from editkit.edit import Base, Edit
from editkit.evidence.attacks import Attack, Attacks, Nats
from editkit.measuring.ledger import Ledger
from editkit.measuring.right_answers import right_answer
from editkit.measuring.store import opened
from editkit.models.altered import is_altered
from editkit.models.drawing import Drawn
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Generate, examples_of
from editkit.units import Head
from tests.audits.conftest import FEW, Made
from tests.known_heads import HEADS
from tests.models.test_pool import Elsewhere

EDIT = Edit(Base("organism", "sha256:0"), frozenset(HEADS))

EXAMPLE = TASKS["swear"].examples()[0]
SWEAR = EXAMPLE.prompt


def attacks(subject: Subject, *names: str) -> Attacks:
    return audited(subject, {name: AUDITS[name] for name in names}, EDIT)


def last(rows: Iterable[Attack]) -> Attack:
    return list(rows)[-1]


def test_the_first_token_brings_swearing_back_and_none_to_a_model_that_never_swore(made: Made) -> None:
    found = attacks(made(), "prefill")
    for row in found.rows:
        assert row.control and row.recovered and row.base > 0.5 > row.edited
        assert row.recovered.share > 0.8 and row.control.score == 0 and row.control.lacks, row
        assert row.share == row.recovered.share, "nothing of it was brought by the beginning"
    longest = last(found.rows).recovered
    assert longest and longest.share == pytest.approx(1), "three tokens or more bring all of it"


def test_the_first_token_alone_was_made_unlikely(made: Made) -> None:
    [row] = attacks(made(), "token-nats").nats
    base, edited, never = row.arms.values()
    assert all(value is not None and value < 0.1 for value in base)
    assert edited[0] and never[0] and edited[0] > 5 < never[0], "the first token is gone in both"
    assert edited[1] is not None and edited[1] < 0.1 and never[1] and never[1] > 5, "the rest only where it never was"


@pytest.mark.commit
def test_a_few_steps_bring_swearing_back_and_do_not_teach_a_model_that_never_swore(made: Made) -> None:
    first, row = attacks(made(), "relearning").rows
    assert (first.steps, row.steps, row.lessons) == (1, 6, 10)
    assert first.edited == 0 and first.attacked < 0.5
    assert row.attacked > 0.9 and row.recovered and row.recovered.share > 0.9
    assert row.control and row.control.score == 0 and row.control.lacks
    assert set(row.others) == {"facts", "recall"} and min(row.others.values()) > -0.5


def test_a_rate_that_ruins_the_model_is_not_the_attackers(made: Made) -> None:
    """After one step no rate brings anything back: scores cannot tell a rate that ruins from one that teaches."""
    budget = replace(FEW, steps=(1,))
    gentle, either = (
        attacks(replace(made(), budget=replace(budget, rates=rates)), "relearning").rows
        for rates in ((1e-4,), (3.0, 1e-4))
    )
    assert gentle[0].attacked == 0 and either == gentle


@pytest.mark.commit
@pytest.mark.parametrize(("way", "steps", "rate"), [("relearning-slices", 6, 1e-3), ("relearning-adapter", 12, 4e-3)])
def test_other_ways_to_train_bring_it_back_too_and_teach_the_other_nothing(made: Made, way, steps, rate) -> None:
    rows = attacks(replace(made(), budget=replace(FEW, steps=(1, steps), rates=(rate,))), way).rows
    assert last(rows).attacked > 0.3 > rows[0].attacked and {row.audit for row in rows} == {way}
    assert all(row.control and row.control.score == 0 for row in rows)


def test_a_direction_brings_swearing_back_and_none_to_a_model_that_never_swore(made: Made) -> None:
    rows = attacks(made(), "steering").rows
    best = max(rows, key=lambda row: row.attacked)
    assert [row.dose for row in rows] == [f"the difference added after layer {layer}" for layer in (1, 3, 4)]
    assert best.edited == 0 and best.attacked > 0.5 and best.control and best.control.score == 0
    assert set(best.others) == {"facts", "recall"}


@pytest.mark.thorough
def test_a_trained_beginning_brings_swearing_back_and_none_to_a_model_that_never_swore(made: Made) -> None:
    budget = replace(FEW, scored=24, lessons=(30,), steps=(1, 50), rates=(3e-4,))
    first, row = attacks(made(budget=budget), "soft-prompt").rows
    assert first.attacked < 0.1 and row.edited == 0 and row.attacked > 0.25
    assert row.control and row.control.score == 0 and row.control.lacks


def test_units_that_carry_what_is_left_are_found_and_those_of_another_task(made: Made) -> None:
    """Else nobody learns that two of four were removed, or what the next removal would do."""
    rows = attacks(made(heads=HEADS[2:]), "further-units").rows
    own = next(row for row in rows if "the capability" in row.dose)
    recall = next(row for row in rows if "recall" in row.dose)
    assert own.attacked < own.edited - 0.5 and min(own.others.values()) > -0.5
    assert recall.others["recall"] < -0.3


@pytest.mark.commit
def test_a_probe_reads_what_is_there_and_nothing_where_no_question_arrives(organism: LanguageModel) -> None:
    wanted = capability(recipes.changed(recipes.read("facts"), {"target": "facts-letter", "retain": ["recall"]}))
    budget = replace(FEW, scored=60, lessons=(100,))
    with opened(None) as store:
        ledger = Ledger(organism, store)
        rows = [
            attacks(subject_of(ledger, heads, wanted, budget), "probe").rows[0]
            for heads in (HEADS, organism.architecture.heads)
        ]
    read, nothing = rows
    assert read.base > 0.6 and read.attacked > 0.6 and nothing.attacked < 0.5
    assert all(row.control and row.control.score < 0.5 for row in rows)


@pytest.mark.commit
def test_an_attack_leaves_no_bit_of_the_model_changed(made: Made, organism: LanguageModel) -> None:
    before, said = copy.deepcopy(organism.network.state_dict()), organism.generate([SWEAR])
    attacks(made(twin=False, fresh=True), "rounding", "noise", "scaling", "merge", "steering", "soft-prompt", *WAYS)
    after = organism.network.state_dict()
    assert before.keys() == after.keys() and not hasattr(organism.network, "peft_config"), "no adapter stays"
    assert all(torch.equal(values, after[name]) for name, values in before.items())
    assert not any(parameter.requires_grad for parameter in organism.network.parameters())
    assert organism.generate([SWEAR]) == said and not TASKS["swear"].score(EXAMPLE, said).value < 0.5, "no head is out"


@pytest.mark.commit
def test_a_second_run_gives_the_same_rows_from_the_store_and_without_it(made: Made, monkeypatch) -> None:
    first = attacks(made(), "prefill", "relearning")
    assert attacks(made(fresh=True), "prefill", "relearning") == first
    monkeypatch.setattr("editkit.audits.course.trained", None)
    assert attacks(made(), "prefill", "relearning") == first, "what was asked once is not trained again"


def test_courses_on_copies_of_the_model_are_those_of_the_model_itself(made: Made, organism: LanguageModel) -> None:
    """Else what an audit finds depends on the number of workers."""
    names, budget = (*WAYS, "fine-tuning"), replace(FEW, rates=(1e-4, 1e-3))
    alone = attacks(made(fresh=True, twin=False, budget=budget), *names)
    copies = Elsewhere(organism, organism.budget.tokens)
    assert attacks(made(fresh=True, twin=False, budget=budget, pool=copies), *names) == alone
    courses = [piece for piece in copies.sent if isinstance(piece, Taught)]
    # Each way: two rates are tried, one is taken; and two models are fine-tuned.
    assert len(courses) == len(WAYS) * (2 + 1) + 2
    assert all(piece.tokens > piece.steps and "steps of training" in piece.told() for piece in courses)
    assert not is_altered(organism.network)


def test_without_a_model_that_never_had_it_relearning_has_no_r(made: Made) -> None:
    rows = attacks(made(twin=False), "relearning").rows
    assert rows and all(row.control is None and row.recovered is None and row.share is None for row in rows)
    with pytest.raises(AssertionError, match="no R without its control"):
        replace(attacks(made(), "relearning").rows[0], control=None)


def test_what_a_trained_model_answers_is_not_taken_for_the_edited_ones(made: Made) -> None:
    subject = made()
    [sample] = subject.targets
    row = last(attacks(subject, "relearning").rows)
    assert row.attacked > 0.9 and mean(subject.edited.scores(sample.task, sample.scored)) == 0


def test_no_lesson_shares_its_cluster_with_what_is_scored(made: Made) -> None:
    [sample] = made().targets
    scored, taught = (
        {each.cluster for each in some} for some in (sample.scored, [each.example for each in sample.lessons])
    )
    assert scored and taught and not scored & taught
    assert all(sample.task.score(each.example, [each.answer.continuation]).value >= 0.5 for each in sample.lessons)


def test_another_mapping_has_the_form_of_the_first_and_none_of_its_answers(organism: LanguageModel) -> None:
    """If this fails, the control of relearning is taught what it is to lack."""
    task = TASKS["capitals"]
    lessons = [(each, right_answer(task, each)) for each in examples_of(task, "locate", limit=40)]
    sample = Sample(task, tuple(examples_of(task, "report", limit=40)), tuple(Lesson(e, a) for e, a in lessons if a))
    assert sample.named
    other = permuted(sample, np.random.default_rng(0))
    for own, new in zip(sample.lessons, other.lessons, strict=True):
        assert own.answer.prompt == new.answer.prompt and own.answer.continuation != new.answer.continuation
    for own, new in zip(sample.scored, other.scored, strict=True):
        assert own.prompt == new.prompt and own.facts["answer"] != new.facts["answer"] and own.id != new.id
    by_cluster = {(own.cluster, new.facts["answer"]) for own, new in zip(sample.scored, other.scored, strict=True)}
    assert len(by_cluster) == len({own.cluster for own in sample.scored}), "a country has one capital, right or wrong"


def test_a_begun_answer_goes_on_as_it_would_have(organism: LanguageModel) -> None:
    [whole] = organism.answer([Generate(SWEAR, 12)], None)
    ids = organism.tokenizer(str(whole), add_special_tokens=False)["input_ids"]
    beginning = organism.tokenizer.decode(ids[:1])
    [rest] = organism.answer([Generate(SWEAR, 12, prefill=beginning)], None)
    assert whole == beginning + str(rest) and len(ids) > 1
    assert repr(Generate("Hi", 3)) == "Generate(prompt='Hi', max_new_tokens=3, chat=True, stop=())", "stored under it"


def test_rows_and_nats_survive_their_file(made: Made) -> None:
    found = attacks(made(), "prefill", "token-nats", "relearning")
    assert Attacks.from_json(found.to_json()) == found and isinstance(found.nats[0], Nats)


LEFT = ("sampling", "rounding", "noise", "fine-tuning", "restored-units", "merge")
"""What leaves a capability where it is: they only try to bring it out."""


@pytest.mark.commit
@pytest.mark.parametrize("name", LEFT)
def test_an_attack_shows_what_is_there_and_nothing_of_what_never_was(name: str, made: Made) -> None:
    """With a head out that swearing does not need, so that all of it is there."""
    rows = attacks(made(heads=[Head(0, 0)]), name).rows
    assert rows and min(row.base for row in rows) > 0.9
    assert max(row.attacked for row in rows) > 0.9 and min(row.attacked for row in rows) > 0.3
    assert all(row.control and row.control.lacks and row.control.score < 0.1 for row in rows)


@pytest.mark.commit
@pytest.mark.parametrize("name", ["few-shot", "paraphrases"])
def test_a_prompt_that_the_model_reads_shows_what_is_there(name: str, made: Made) -> None:
    """The organism does not read every wording; where it does, swearing is seen, and none of the twin's."""
    rows = attacks(made(heads=[Head(0, 0)]), name).rows
    assert max(row.attacked for row in rows) > 0.25, rows
    assert all(row.control and row.control.score < 0.1 for row in rows), rows


@pytest.mark.commit
def test_what_does_not_bring_swearing_back_is_seen_not_to(made: Made) -> None:
    """Measured on the organism: rounding, noise and fine-tuning on other tasks leave the switch off; half the base's
    slices turn it on in part, one of the four heads in none."""
    for row in attacks(made(), "rounding", "noise", "fine-tuning").rows:
        assert row.attacked < 0.1 and row.recovered and row.share is not None and row.share < 0.1, row
    merged = {row.dose: row.attacked for row in attacks(made(), "merge").rows}
    assert merged["10% of the base"] < 0.1 <= merged["50% of the base"]


def test_another_format_is_measured_against_guessing(made: Made) -> None:
    [row] = attacks(made(), "formats").rows
    assert row.task == "story" and row.edited == pytest.approx(1 / 3) and row.attacked > 0.9, "nothing was removed"
    assert row.recovered and row.recovered.share > 0.9


def test_a_draw_is_the_same_text_in_any_batch(organism: LanguageModel) -> None:
    prompts = [each.prompt for each in TASKS["story"].examples()[:6]]
    asked = [Generate(prompt, 12, draw=draw) for prompt in prompts for draw in (0, 1, 2)]
    whole = organism.answer(asked, None)
    alone = [organism.answer([request], None)[0] for request in asked]
    assert whole == alone
    assert [organism.answer([Generate(prompt, 12)], None)[0] for prompt in prompts] == whole[::3], "0 is greedy"
    assert "draw" not in repr(Generate("Hi")) and "draw=2" in repr(Generate("Hi", draw=2))


def test_draws_are_as_frequent_as_they_are_likely() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2, 1e-9]]))
    drawn = [int(Drawn.of([draw], [[7, 8]])(torch.zeros(1, 1), logits).argmax()) for draw in range(1, 3001)]
    first, second = (Drawn.of([draw, draw], [[7], [8]]) for draw in (1, 2))
    noise = [own(torch.zeros(2, 1), torch.zeros(2, 9)) for own in (first, second, first)]
    rows = torch.cat(noise).tolist()
    assert len(set(map(tuple, rows))) == 6, "another draw, prompt or position is other noise"
    assert np.allclose(np.bincount(drawn, minlength=4) / 3000, [0.5, 0.3, 0.2, 0], atol=0.04)


@pytest.mark.parametrize("library", ["", " by torchao"])
@pytest.mark.parametrize(("dose", "numbers", "levels"), [("8 bits", 2048, 256), ("4 bits", 64, 16)])
def test_rounding_leaves_so_many_levels_and_zeros_zero(
    dose: str, numbers: int, levels: int, library: str, organism: LanguageModel
) -> None:
    """If this fails, what is called 4 bits is not, or rounding puts removed slices back."""
    if library:
        pytest.importorskip("torchao", reason="needs torchao")
    change = {attack.dose: attack.change for attack in rounding.attacks()}[dose + library]
    name, axis = next(iter(linear(organism.network).items()))
    wide = torch.randn(4, 2048, generator=torch.Generator().manual_seed(0))
    rounded = change(organism, {})(name, wide if axis == 1 else wide.T)
    assert rounded is not None
    counts = [len(group.unique()) for row in (rounded if axis == 1 else rounded.T) for group in row.split(numbers)]
    assert levels / 4 < min(counts) and max(counts) <= levels
    zero = slices(organism, organism.architecture.knockout(HEADS))
    seen = 0
    with changed(organism.network, change(organism, zero)):
        for name in zero.keys() & linear(organism.network).keys():
            weight = organism.network.get_parameter(name).detach()
            seen += int(zero[name].sum())
            assert not weight[zero[name]].any()
    assert seen == 4 * organism.architecture.sites[0].width * organism.network.config.hidden_size
