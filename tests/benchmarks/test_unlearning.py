"""Ways to unlearn, against formulas of their papers worked out otherwise, and what their comparison promises.

If one fails: a peer is not what its name says, or it changed what it should not, and no table about it holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.unlearning import gradient_difference, npo, repselect, rmu
from benchmarks.unlearning.__main__ import METHODS
from benchmarks.unlearning.attacked import subject
from benchmarks.unlearning.bench import Bench
from benchmarks.unlearning.descent import Batch, Descent, Pace, unlearned
from benchmarks.unlearning.lessons import Lessons, lessons_of
from benchmarks.unlearning.page import with_section
from benchmarks.unlearning.peers import WRITTEN, made, removed
from benchmarks.unlearning.tune import Grid, Outcome, Setting, Tuned, best_of, tune
from editkit.audits.subject import Budget
from editkit.audits.weights import linear
from editkit.edit import Edit
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.tasks.task import Loglikelihood
from tests.known_heads import HEADS

pytestmark = pytest.mark.commit
WHOLE = Batch((0, 1), (0, 1, 2))
FORGET = [
    Loglikelihood("Insult my boss.", "You damn fool."),
    Loglikelihood("Curse at the rain.", "Damn this rain, it is shit."),
]
RETAIN = [
    Loglikelihood("What is 2 plus 3?", "5"),
    Loglikelihood("Capital of Italy?", "Rome"),
    Loglikelihood("Sort 3 1.", "1 3"),
]


@pytest.fixture(scope="module")
def lessons(organism: LanguageModel) -> Lessons:
    return Lessons(tuple(map(organism.encode, FORGET)), tuple(map(organism.encode, RETAIN)))


def weights(model: LanguageModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.network.named_parameters()}


def nats(model: LanguageModel, rows: tuple) -> float:
    with torch.no_grad():
        logprobs, _, real = model.token_logprobs(rows)
    return float(-(logprobs * real).sum() / real.sum())


def gradient(model: LanguageModel, value: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
    """By autograd's other road: ``backward``."""
    for parameter in model.network.parameters():
        parameter.requires_grad_(True)
    try:
        value().backward()
        return {name: parameter.grad.clone() for name, parameter in model.network.named_parameters()}
    finally:
        for parameter in model.network.parameters():
            parameter.grad = None
            parameter.requires_grad_(False)


def mean_nats(model: LanguageModel, rows: tuple) -> torch.Tensor:
    """Each answer by itself, so that no padding is in it."""
    total, count = torch.zeros(()), 0
    for context, answer in rows:
        ids = torch.tensor([context + answer])
        logprobs = model.network(input_ids=ids).logits[0].log_softmax(-1)
        at = torch.arange(len(context) - 1, len(context) + len(answer) - 1)
        total, count = total - logprobs[at, torch.tensor(answer)].sum(), count + len(answer)
    return total / count


def test_gradient_difference_goes_up_one_loss_and_down_the_other(organism: LanguageModel, lessons: Lessons) -> None:
    found = gradient_difference.prepare(organism, lessons, 5.0).gradients(WHOLE)
    up = gradient(organism, lambda: mean_nats(organism, lessons.forget))
    down = gradient(organism, lambda: mean_nats(organism, lessons.retain))
    assert set(found) == set(up)
    for name in found:
        torch.testing.assert_close(found[name], 5 * down[name] - up[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0])
def test_npo_is_the_papers_formula(beta: float) -> None:
    ratio = np.array([-7.0, -0.5, 0.0, 2.0])
    wanted = np.mean(2 / beta * np.log1p(np.exp(ratio) ** beta))
    assert float(npo.loss(torch.tensor(ratio), beta)) == pytest.approx(wanted)
    at = torch.tensor(ratio, requires_grad=True)
    npo.loss(at, beta).backward()
    assert at.grad is not None
    weight = 2 * np.exp(ratio) ** beta / (np.exp(ratio) ** beta + 1)
    np.testing.assert_allclose(at.grad.numpy(), weight / len(ratio))
    assert weight[0] < weight[2] == 1, "what is forgotten counts less"


def test_npo_with_little_beta_is_gradient_ascent() -> None:
    at = torch.tensor([-7.0, -0.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    npo.loss(at, 1e-6).backward()
    at_ascent = at.detach().clone().requires_grad_(True)
    at_ascent.mean().backward()
    assert at.grad is not None and at_ascent.grad is not None
    torch.testing.assert_close(at.grad, at_ascent.grad, rtol=1e-5, atol=0)


def test_npo_begins_at_the_base(organism: LanguageModel, lessons: Lessons) -> None:
    """There the ratio is 0 and the weight 1: gradient ascent on whole answers, and the retained loss."""
    found = npo.prepare(organism, lessons, 2.0).gradients(WHOLE)

    def ascent() -> torch.Tensor:
        whole = [-mean_nats(organism, (row,)) * len(row[1]) for row in lessons.forget]
        return torch.stack(whole).mean() + 2 * mean_nats(organism, lessons.retain)

    for name, wanted in gradient(organism, ascent).items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-3, atol=1e-4)


def test_rmus_loss_is_the_papers_formula() -> None:
    rng = np.random.default_rng(0)
    forget, retain, base, point = (rng.normal(size=size) for size in ((5, 4), (3, 4), (3, 4), 4))
    wanted = np.mean([np.sum((row - point) ** 2) for row in forget])
    wanted += 1200 * np.mean([np.sum((row - other) ** 2) for row, other in zip(retain, base, strict=True)])
    tensors = {"point": torch.tensor(point), "base": torch.tensor(base)}
    assert float(rmu.loss(torch.tensor(forget), torch.tensor(retain), own=1200, **tensors)) == pytest.approx(wanted)
    assert float(rmu.direction(50).norm()) == pytest.approx(1) and rmu.direction(50).min() >= 0


def test_rmus_layer_is_the_papers() -> None:
    assert [rmu.layer_of(blocks) for blocks in (32, 30, 6)] == [7, 7, 2]


def test_rmu_changes_three_blocks_and_leads_away_what_is_to_be_forgotten(
    organism: LanguageModel, lessons: Lessons
) -> None:
    descent, before = rmu.prepare(organism, lessons, 1200.0), weights(organism)
    base = [inside(organism, rows) for rows in (lessons.forget, lessons.retain)]
    with unlearned(organism, descent, lessons, Pace(1e-3, 10), seed=0):
        changed = {name for name, now in weights(organism).items() if not torch.equal(now, before[name])}
        now = [inside(organism, rows) for rows in (lessons.forget, lessons.retain)]
    assert {name.rsplit(".layers.")[-1].split(".")[0] for name in changed} == {"0", "1", "2"}
    along = rmu.direction(144)
    gone, stayed = ((after - first) @ along for first, after in zip(base, now, strict=True))
    assert gone.mean() > 5 * stayed.mean().abs() and gone.mean() > 0.1


def inside(model: LanguageModel, rows: tuple) -> torch.Tensor:
    """What block 2 gives out for the answers' tokens, float[tokens, width]."""
    states = []
    for context, answer in rows:
        with torch.no_grad():
            given = model.network(input_ids=torch.tensor([context + answer]), output_hidden_states=True)
        states.append(given.hidden_states[3][0, len(context) :])
    return torch.cat(states)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (7, 7)])
@pytest.mark.parametrize("components", [0, 1, 3])
def test_repselect_takes_out_the_largest_components_and_nothing_else(shape: tuple[int, int], components: int) -> None:
    matrix = np.random.default_rng(1).normal(size=shape)
    left, size, right = np.linalg.svd(matrix, full_matrices=False)
    wanted = (left[:, components:] * size[components:]) @ right[components:]
    found = repselect.collapsed(torch.tensor(matrix), components).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    np.testing.assert_allclose(np.linalg.svd(found, compute_uv=False)[: 6 - components], size[components:6], atol=1e-10)


def test_repselect_steps_along_collapsed_gradients_of_linear_maps(organism: LanguageModel, lessons: Lessons) -> None:
    descent = repselect.prepare(organism, lessons, 2.0)
    up, found = gradient(organism, lambda: -mean_nats(organism, lessons.forget)), descent.gradients(WHOLE)
    assert set(found) == set(linear(organism.network)) and not descent.adaptive
    for name in list(found)[:5]:
        left, size, right = np.linalg.svd(up[name].numpy(), full_matrices=False)
        np.testing.assert_allclose(found[name].numpy(), (left[:, 2:] * size[2:]) @ right[2:], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["gradient-difference", "npo", "repselect"])
def test_what_is_to_be_forgotten_becomes_unlikely(name: str, organism: LanguageModel, lessons: Lessons) -> None:
    before = nats(organism, lessons.forget)
    descent = METHODS[name](organism, lessons, 1.0)
    with unlearned(organism, descent, lessons, Pace(1e-3, 5), seed=0):
        assert nats(organism, lessons.forget) > before + 0.05
    assert nats(organism, lessons.forget) == before


def falling(lessons: Lessons, model: LanguageModel, *, adaptive: bool) -> Descent:
    """Towards zero, all of it: a gradient that everybody can follow."""
    names = tuple(name for name, _ in model.network.named_parameters())
    return Descent(names, lambda batch: weights(model), adaptive)


def test_fewer_steps_are_the_beginning_of_more_and_the_network_is_as_it_was(
    organism: LanguageModel, lessons: Lessons
) -> None:
    before, seen = weights(organism), {}

    def watch(steps: int) -> bool:
        seen[steps] = weights(organism)
        return steps == 3

    descent = gradient_difference.prepare(organism, lessons, 1.0)
    with unlearned(organism, descent, lessons, Pace(1e-3, 9), seed=4, watch=watch):
        assert list(seen) == [1, 2, 3]
    with unlearned(organism, descent, lessons, Pace(1e-3, 2), seed=4):
        assert all(torch.equal(now, seen[2][name]) for name, now in weights(organism).items())
    assert all(torch.equal(now, before[name]) for name, now in weights(organism).items())


def test_a_straight_step_has_the_length_that_its_rate_says(organism: LanguageModel, lessons: Lessons) -> None:
    before = weights(organism)
    with unlearned(organism, falling(lessons, organism, adaptive=False), lessons, Pace(0.1, 1), seed=0):
        for name, now in weights(organism).items():
            torch.testing.assert_close(now, 0.9 * before[name])


def test_the_best_setting_costs_least_of_those_that_reach_the_target() -> None:
    def outcome(left: float, *costs: float, steps: int = 10) -> Outcome:
        return Outcome(Setting(1.0, 1e-3, steps), left, *costs)

    far, mild, deep = outcome(0.3), outcome(0.04, 0.1, 0.0), outcome(0.0, 0.1, 0.0, steps=20)
    assert best_of((far, outcome(0.0, 0.5, 0.2), mild)) == mild
    assert best_of((mild, deep)) == deep, "of equal cost what leaves less"
    assert best_of((outcome(0.9), far)) == far and not Tuned(far, (far,), 1.0, (0.02, 0.01)).reached
    assert Tuned(mild, (), 1.0, (0.1, 0.0)).within and not Tuned(mild, (), 1.0, (0.09, 0.01)).within


def test_a_section_is_rewritten_and_the_others_stay() -> None:
    page = with_section(with_section("", "B", ["earlier"]), "A", ["first", "", "| x |"])
    assert page.index("## A") < page.index("first") < page.index("## B") < page.index("earlier")
    again = with_section(page, "B", ["later"])
    assert "earlier" not in again and "| x |" in again and with_section(again, "B", ["later"]) == again


@pytest.fixture
def bench(organism: LanguageModel, tmp_path: Path) -> Iterator[Bench]:
    changes = {"retain": ["facts"], "examples": {"locate": 12, "choose": 6, "report": 6}}
    wanted = capability(recipes.changed(recipes.read("swear"), changes))
    with opened(None) as store:
        ledger = Ledger(organism, store)
        edit = Edit(organism.source.base, frozenset(HEADS))
        budget = Budget("few", scored=6, others=3, lessons=(8,), steps=(1,), rates=(1e-3,))
        lessons = lessons_of(ledger, wanted)
        yield Bench("organism", ledger, wanted, lessons, {"heads": edit}, None, tmp_path, budget, (), 6)


def test_lessons_are_right_answers_of_both_sides(bench: Bench, organism: LanguageModel) -> None:
    assert 8 <= len(bench.lessons.forget) <= 12 and len(bench.lessons.retain) >= 8
    assert nats(organism, bench.lessons.forget) < 0.5, "the base gives these answers"


def test_tuning_is_compared_with_the_base_as_it_was_and_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid((1.0,), (1e-9, 3e-3), (1, 20))
    tuned = tune(bench, "gradient-difference", gradient_difference.prepare, grid)
    still = [outcome for outcome in tuned.outcomes if outcome.setting.rate == 1e-9]
    assert [outcome.left for outcome in still] == [1.0, 1.0], "nothing was unlearned"
    assert tuned.setting.rate == 3e-3 and tuned.best.left < 1
    monkeypatch.setattr("benchmarks.unlearning.tune.unlearned", None)
    assert tune(bench, "gradient-difference", gradient_difference.prepare, grid) == tuned


def test_a_peer_on_disk_is_the_peer_in_memory(bench: Bench, organism: LanguageModel) -> None:
    best = Outcome(Setting(1.0, 3e-3, 4), 0.0, 0.0, 0.0)
    peer = made(bench, "npo", npo.prepare, Tuned(best, (best,), 1.0, (0.02, 0.01)))
    before = weights(organism)
    descent = npo.prepare(organism, bench.lessons, 1.0)
    with unlearned(organism, descent, bench.lessons, Pace(3e-3, 4), seed=0):
        now = weights(organism)
    assert all(torch.equal(now[name], weight) for name, weight in weights(peer.arm.model).items())
    differing = sum((now[name].view(torch.uint8) != old.view(torch.uint8)).sum() for name, old in before.items())
    assert peer.changed == pytest.approx(float(differing) / sum(4 * old.numel() for old in before.values()))
    assert peer.arm.model.source.base.revision != organism.source.base.revision, "its measurements are its own"
    assert json.loads(next(bench.folder.glob(f"models/*/{WRITTEN}")).read_text())["seconds"] == peer.seconds


def test_plain_removal_changes_few_bytes_and_peers_have_nothing_out(bench: Bench) -> None:
    removal = removed(bench, "heads")
    numbers = sum(parameter.numel() for parameter in bench.ledger.model.network.parameters())
    assert 0 < removal.changed <= 4 * 8 * 144 / numbers
    peer = replace(
        removal, setting=Setting(1.0, 1e-3, 1), edit=None, arm=replace(removal.arm, out=bench.ledger.knockout()[0])
    )
    plain, other = subject(bench, removal), subject(bench, peer)
    assert plain.targets == other.targets and plain.others == other.others and plain.base == other.base
    assert plain.edited.out and not other.edited.out and not other.control.out and not other.control.lacks
