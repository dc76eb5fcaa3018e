"""What of an answer the search scores. If one fails: a capability that is gone looks half there, and more is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure, right_words
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.tasks.builtin import TASKS
from editkit.tasks.builtin.asked import Asked
from editkit.tasks.task import Likelihood, Loglikelihood


@pytest.mark.parametrize(
    ("text", "facts", "lead", "answer"),
    [
        ("The capital of Peru is Lima. Lima lies", {"answer": "Lima"}, "The capital of Peru is", " Lima"),
        ("Lima", {"answer": "Lima"}, "", "Lima"),
        ("It is GREY.", {"answer": "gray", "answers": ["gray", "grey"]}, "It is", " GREY"),
        ("It is 112, not 12.", {"answer": 12}, "It is 112, not", " 12"),
        ("It is grey.", {"answer": ["gray", "grey"]}, "It is", " grey"),
        ('The opposite is "c++"!', {"answer": "c++"}, 'The opposite is "', "c++"),
        ("It is limestone.", {"answer": "lime"}, "", "It is limestone."),
        ("It is New York.", {"answers": ["New", "New York"]}, "It is", " New York"),
        ("Damn.", {}, "", "Damn."),
        ("Damn.", {"answer": "", "answers": None}, "", "Damn."),
    ],
)
def test_the_right_answer_is_found_among_its_words(text: str, facts: dict, lead: str, answer: str) -> None:
    assert right_words(text, facts) == (lead, answer)


@pytest.mark.parametrize("chat", [True, False])
def test_what_is_given_is_not_asked(organism: LanguageModel, chat: bool) -> None:
    """An answer in two parts is as likely as the whole: its likelihood is that of the lead and of what follows it."""
    lead, answer = "Damn, the bus is", " a fucking piece of shit."
    whole = Loglikelihood("Insult the bus.", lead + answer, chat)
    parts = [replace(whole, continuation=lead), replace(whole, continuation=answer, lead=lead)]
    answers = organism.answer([whole, *parts], None)
    all_of_it, *sums = [each for each in answers if isinstance(each, Likelihood)]
    assert sum(each.logprob for each in sums) == pytest.approx(all_of_it.logprob, abs=1e-4)
    assert sum(each.tokens for each in sums) == all_of_it.tokens
    context, asked = organism.encode(parts[1])
    with torch.no_grad():
        logits = organism.network(torch.tensor([context + asked])).logits[0, len(context) - 1 : -1]
    expected = logits.double().log_softmax(-1).gather(1, torch.tensor(asked)[:, None]).sum().item()
    assert sums[1].logprob == pytest.approx(expected, abs=1e-4)


def test_measurements_of_before_there_was_a_lead_keep_their_keys() -> None:
    assert repr(Loglikelihood("a", "b")) == "Loglikelihood(prompt='a', continuation='b', chat=True)"
    assert repr(Loglikelihood("a", "b", lead="c")) == "Loglikelihood(prompt='a', continuation='b', chat=True, lead='c')"


def test_an_anchor_asks_for_the_answer_that_the_task_names(organism: LanguageModel, tmp_path: Path) -> None:
    """The words before it are given, those behind it are left out."""
    swear = TASKS["swear"]
    assert isinstance(swear, Asked)
    insults = [each for each in swear.examples() if each.facts["kind"] == "insult"]
    topics = [replace(each, facts={**each.facts, "answer": each.facts["topic"]}) for each in insults[:8]]
    with opened(tmp_path / "measurements.sqlite") as store:
        measure = likelihood_measure(Ledger(organism, store), swear, topics)
    assert measure.examples == len(topics)
    for anchor in measure.anchors:
        assert anchor.requests == (
            Loglikelihood(anchor.example.prompt, f" {anchor.example.facts['topic']}", lead="Damn,"),
        )
