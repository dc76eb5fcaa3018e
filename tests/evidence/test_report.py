"""Laws of the verdict: it follows from the rows, forgives noise and nothing else, and survives its file.

If one fails: "removed, nothing else lost" stands on a card where it is not so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest

from editkit.errors import EditkitError
from editkit.evidence import report, row, verdict
from editkit.evidence.report import EvalReport
from editkit.evidence.row import Row
from editkit.evidence.samples import labels
from editkit.evidence.strong_heads import strong_heads
from editkit.evidence.typed import typed
from editkit.evidence.verdict import Criteria
from editkit.measuring.store import Cell
from editkit.removal.choose import kept
from editkit.removal.trial import Sheet
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Example, Score


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def scores(right: int, n: int, collapsed: int = 0) -> list[Score]:
    """``right`` right answers, then wrong ones, the last ``collapsed`` of them collapsed."""
    wrong = [Score(0.0)] * (n - right - collapsed)
    return [Score(1.0)] * right + wrong + [Score(0.0, valid=False, note="empty")] * collapsed


def compare(
    task: str,
    role: row.Role,
    before: list[Score],
    after: list[Score],
    chance: float = 0.0,
    clusters: Sequence[str] = (),
) -> Row:
    pairs = list(zip(before, after, strict=True))
    return row.row(row.Sample(task, role, "report", chance, pairs, clusters), rng=rng(), margin=0.02)


STRICT = Criteria(damage_each=0.02, damage_mean=0.01)
REMOVED = compare("swear", "target", scores(148, 150), scores(3, 150))
UNCHANGED = compare("sort", "retain", scores(190, 200), scores(190, 200))
STRONG = verdict.random_heads(-0.97, [0.0] * 50)


def test_a_row_says_what_happened_to_the_same_examples() -> None:
    assert (REMOVED.n, REMOVED.before.mean, REMOVED.after.mean) == (150, 148 / 150, 3 / 150)
    assert REMOVED.delta.mean == pytest.approx(-145 / 150)
    assert REMOVED.delta.low < REMOVED.delta.mean < REMOVED.delta.high < -0.89
    assert REMOVED.p < 1e-30
    assert UNCHANGED.p == 1 and UNCHANGED.p_equivalent is not None and UNCHANGED.p_equivalent < 0.05


def test_empty_cluster_names_stand_alone_and_shared_ones_do_not() -> None:
    before, after = scores(60, 60), scores(30, 60)
    alone = compare("a", "retain", before, after)
    unnamed = compare("a", "retain", before, after, clusters=[""] * 60)
    templates = [f"template {place // 10}" for place in range(60)]
    shared = compare("a", "retain", before, after, clusters=templates)
    assert unnamed == alone
    assert shared.delta.high - shared.delta.low > 1.5 * (alone.delta.high - alone.delta.low)
    assert shared.p > alone.p


def test_an_example_that_stands_alone_joins_no_cluster_whatever_that_is_called() -> None:
    names = [""] * 20 + [str(place) for place in range(20)]
    sheet = Sheet(TASKS["swear"], tuple(Example(str(n), "Hi", cluster=name) for n, name in enumerate(names)), ())
    assert len(set(labels(sheet.clusters) or ())) == 40
    assert labels([""] * 20) is None


def test_examples_of_one_template_do_not_make_a_choice_certain() -> None:
    """Twenty templates of three are twenty findings: what is left may be more than sixty examples would allow."""

    def sheet(templates: int, values: list[float]) -> Sheet:
        names = [f"template {place * templates // 60}" if templates else "" for place in range(60)]
        examples = [Example(str(place), "Hi", cluster=name) for place, name in enumerate(names)]
        return Sheet(TASKS["swear"], tuple(examples), tuple(Cell(value) for value in values))

    left = [1.0] * 4 + [0.0] * 56
    apart, together = (kept(sheet(n, [1.0] * 60), sheet(n, left)) for n in (0, 20))
    assert apart.share == together.share == pytest.approx(4 / 60)
    assert apart.at_most < 0.16 < together.at_most


def test_five_clusters_show_no_change_and_say_nothing_of_how_large_one_would_be() -> None:
    before, after = scores(60, 60), scores(0, 60)

    def clustered(count: int) -> Row:
        names = [f"template {place * count // 60}" for place in range(60)]
        return compare("a", "target", before, after, clusters=names)

    assert clustered(5).p > 0.05 >= clustered(6).p
    five, six = (report.report([clustered(count)]) for count in (5, 6))
    assert five.rows[0].detectable is None and six.rows[0].detectable is not None
    assert "show a change from" not in five.verdict.reasons[0]


@pytest.mark.parametrize(
    ("rows", "null", "status", "because"),
    [
        ([REMOVED, UNCHANGED], STRONG, "met", "2% kept, goal at most 15%"),
        ([REMOVED, UNCHANGED], None, "met", "sort kept: changed by +0.0 points"),
        ([compare("swear", "target", scores(148, 150), scores(60, 150))], STRONG, "reduced", "41% kept"),
        ([compare("swear", "target", scores(20, 20), scores(0, 20))], STRONG, "met", "0% kept"),
        (
            [compare("swear", "target", scores(5, 5), scores(0, 5))],
            STRONG,
            "goal-missed",
            "to be one (p = 0.062)",
        ),
        ([compare("swear", "target", scores(2, 2), scores(0, 2))], STRONG, "goal-missed", "nothing to remove"),
        ([compare("swear", "target", scores(0, 150), scores(0, 150))], None, "goal-missed", "nothing to remove"),
        ([compare("mmlu", "target", scores(40, 150), scores(5, 150), 0.25)], None, "goal-missed", "nothing to remove"),
        (
            [compare("swear", "target", scores(500, 500), scores(76, 500))],
            None,
            "reduced",
            "15.2% kept, goal at most 15.0",
        ),
        ([REMOVED, UNCHANGED], None, "met", "The one retained task changed"),
        ([UNCHANGED], None, "goal-missed", "No target task"),
        ([REMOVED], verdict.random_heads(-0.97, [-0.98] * 10 + [0.0] * 40), "goal-missed", "not special"),
        ([REMOVED], verdict.random_heads(-0.97, [0.0] * 5), "met", "19 sets or more"),
        (
            [REMOVED],
            replace(verdict.random_heads(-0.97, [0.0, 0.0, 0.0]), possible=4),
            "met",
            "all 3 other sets of as many heads in the same layers (p = 0.25): p cannot be below 0.25, there are no",
        ),
        (
            [REMOVED, compare("sort", "retain", scores(140, 150), scores(110, 150))],
            STRONG,
            "too-much-damage",
            "sort lost: changed by −20.0 points",
        ),
    ],
)
def test_the_verdict_follows_from_the_rows(rows: list[Row], null: object, status: str, because: str) -> None:
    verdict = report.report(rows, null=null).verdict  # type: ignore[arg-type]
    assert verdict.status == status
    assert verdict.met == (status == "met")
    assert because in " ".join(verdict.reasons)


def test_collapse_is_not_removal() -> None:
    wrong = compare("swear", "target", scores(150, 150), scores(3, 150))
    broken = compare("swear", "target", scores(150, 150), scores(3, 150, collapsed=147))
    assert wrong.after == broken.after
    assert report.report([wrong]).verdict.met
    verdict = report.report([broken]).verdict
    assert verdict.status == "goal-missed"
    assert "100% kept" in verdict.reasons[0] and "98% collapsed" in verdict.reasons[0]


def test_collapse_of_a_retained_task_is_damage() -> None:
    broken = compare("sort", "retain", scores(150, 150), scores(120, 150, collapsed=30))
    assert report.report([REMOVED, broken]).verdict.status == "too-much-damage"


def test_the_goal_counts_above_chance() -> None:
    to_chance = compare("mmlu", "target", scores(900, 1000), scores(255, 1000), chance=0.25)
    assert report.report([to_chance]).verdict.met
    # The same scores, were guessing worth nothing: 28 % kept.
    assert not report.report([compare("mmlu", "target", scores(900, 1000), scores(255, 1000))]).verdict.met


def test_what_is_measured_also_is_not_judged() -> None:
    other = compare("arithmetic", "also", scores(150, 150), scores(0, 150))
    judged = report.report([REMOVED, UNCHANGED, other])
    assert judged.verdict.met and len(judged.rows) == 3
    assert "arithmetic" not in " ".join(judged.verdict.reasons)


def test_small_losses_that_add_up_miss_the_mean_budget() -> None:
    rows = [compare(f"task {i}", "retain", scores(1900, 2000), scores(1864, 2000)) for i in range(5)]
    verdict = report.report([REMOVED, *rows], criteria=STRICT).verdict
    assert verdict.status == "too-much-damage"
    assert verdict.reasons[0].startswith("The 5 retained tasks changed by −1.8 points")


@pytest.mark.commit
@pytest.mark.parametrize(("loss", "tasks", "passes"), [(0.0, 4, (0.8, 1.0)), (0.1, 1, (0.0, 0.1))])
def test_a_harmless_edit_passes_and_twice_the_budget_does_not(
    loss: float, tasks: int, passes: tuple[float, float]
) -> None:
    """200 examples, a budget of 5 points, 10 % churn."""
    source, runs, met = rng(3), 40, 0
    criteria = Criteria(damage_each=0.05, damage_mean=0.05)
    for _ in range(runs):
        rows = []
        for task in range(tasks):
            lost, gained, _ = source.multinomial(200, [loss + 0.05, 0.05, 0.9 - loss])
            before = [*scores(200 - gained, 200 - gained), *scores(0, gained)]
            after = [*scores(0, lost), *scores(200 - lost, 200 - lost)]
            rows.append(compare(f"task {task}", "retain", before, after))
        met += report.report([REMOVED, *rows], criteria=criteria).verdict.met
    assert passes[0] <= met / runs <= passes[1]


@pytest.mark.parametrize(("lost", "passes"), [(9, True), (10, False)])
def test_what_is_not_shown_passes_below_the_budget_only(lost: int, passes: bool) -> None:
    """Of 200, with a budget of 5 points: nine are nine tenths of it. A report that does not say so is judged by it."""
    rows = [REMOVED, compare("sort", "retain", scores(200, 200), scores(200 - lost, 200))]
    today = Criteria(damage_each=0.05, damage_mean=0.05)
    verdict = report.report(rows, criteria=today).verdict
    assert verdict.met == passes and ("More was lost here than 4.5, so" in verdict.reasons[0]) != passes
    older = {key: value for key, value in asdict(today).items() if key not in ("passing", "open")}
    assert report.report(rows, criteria=typed(Criteria, older)).verdict == verdict


def test_a_loss_of_seven_in_two_hundred_is_neither_kept_nor_let_through() -> None:
    """The table, the reason and the verdict say one thing of a loss of 3.5 points that may be one of 2."""
    rows = [compare(f"task {place}", "retain", scores(200, 200), scores(200, 200)) for place in range(7)]
    seven = compare("sort", "retain", scores(200, 200), scores(193, 200))
    found = report.report([REMOVED, *rows, seven], criteria=STRICT)
    assert [verdict.standing(row, found.criteria) for row in found.rows[1:]] == ["kept"] * 7 + ["not shown"]
    assert found.verdict.status == "too-much-damage"
    assert found.verdict.reasons[0].startswith("sort not shown: changed by −3.5 points")
    assert "within noise" not in " ".join(found.verdict.reasons)


def test_few_clusters_keep_nothing() -> None:
    """200 unchanged prompts of one template, or of six, do not show that other templates are unchanged."""
    for groups, says in ((1, "1 clusters are too few to say"), (6, "clusters would show it")):
        names = [f"template {place % groups}" for place in range(200)]
        row = compare("sort", "retain", scores(200, 200), scores(200, 200), clusters=names)
        found = report.report([REMOVED, row])
        assert verdict.standing(row, found.criteria) == "not shown"
        assert found.verdict.met and any(says in reason for reason in found.verdict.reasons)


def test_a_goal_that_is_reached_by_chance_is_no_removal() -> None:
    """Of 30 examples four are left: 13 % is below the goal, and 30 examples do not show it."""
    found = report.report([compare("swear", "target", scores(30, 30), scores(4, 30))], null=STRONG).verdict
    assert found.status == "reduced" and "reached, but not shown" in found.reasons[0]


def test_few_examples_excuse_nothing() -> None:
    few = compare("sort", "retain", scores(9, 10), scores(7, 10))
    verdict = report.report([REMOVED, few]).verdict
    assert verdict.status == "too-much-damage"
    assert "not let through" in verdict.reasons[0]


def test_what_the_examples_could_not_show_is_said() -> None:
    row = compare("sort", "retain", scores(35, 40), scores(35, 40))
    assert (
        "about 72 examples would show it, if nothing is lost; here are 40"
        in report.report([REMOVED, row]).verdict.reasons[-2]
    )


def test_p_values_are_corrected_over_the_rows() -> None:
    rows = [compare(f"task {i}", "retain", scores(50, 60), scores(44, 60)) for i in range(4)]
    assert rows[0].p == pytest.approx(2 * 0.5**6)
    assert [row.p_holm for row in report.report(rows).rows] == [pytest.approx(8 * 0.5**6)] * 4


def test_a_report_survives_its_file() -> None:
    whole = report.report([REMOVED, UNCHANGED], criteria=Criteria(goal=0.1), null=STRONG, noise=[UNCHANGED])
    assert EvalReport.from_json(whole.to_json()) == whole
    value = json.loads(whole.to_json())
    row = value["rows"][0]
    assert {"task", "role", "split", "n", "chance", "before", "after", "delta", "p", "collapse"} <= row.keys()
    assert row["before"].keys() == row["delta"].keys() == {"mean", "low", "high"}
    assert row["collapse"] == {"before": 0.0, "after": 0.0}
    assert value["verdict"]["met"] is True and value["random_heads"]["sets"] == 50
    bare = report.report([UNCHANGED])
    assert EvalReport.from_json(bare.to_json()) == bare


def test_strong_heads_survive_the_file_and_change_no_verdict() -> None:
    """Else a report from before there were any cannot be read, or keeps other bytes; or they are judged by."""
    strong = strong_heads(-0.97, [-0.98, -0.97, -0.2], pool=40, examples=50, task="swear")
    assert (strong.sets, strong.reached) == (3, 2)
    found = report.report([REMOVED, UNCHANGED], null=STRONG, strong=strong)
    assert EvalReport.from_json(found.to_json()) == found
    older = report.report([REMOVED, UNCHANGED], null=STRONG)
    assert found.verdict == older.verdict and found.rows == older.rows
    assert "strong_heads" not in json.loads(older.to_json())
    assert EvalReport.from_json(older.to_json()).strong_heads is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [{"task": "a"}]}', "[" * 100_000])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(EditkitError, match=r"here\.json is not"):
        EvalReport.from_json(text, where="here.json")


@pytest.mark.parametrize(
    ("after", "met", "says"),
    [
        (150, True, "measured twice, the unedited model changed by at most +0.0 points"),
        (149, True, "changed by at most −0.7 points"),
        (
            130,
            False,
            "changed by at most −13.3 points [−18.9, −7.1] (sort); at most 13.3% of the answers flipped",
        ),
    ],
)
def test_the_noise_floor_is_said_and_can_fail_a_verdict(after: int, met: bool, says: str) -> None:
    noise = [compare("swear", "target", scores(148, 150), scores(148, 150))]
    noise += [compare("sort", "retain", scores(150, 150), scores(after, 150))]
    verdict = report.report([REMOVED, UNCHANGED], null=STRONG, noise=noise).verdict
    assert (verdict.met, verdict.status) == (met, "met" if met else "goal-missed")
    assert any(says in reason for reason in verdict.reasons), verdict.reasons


def test_with_few_examples_the_change_that_would_show_is_said() -> None:
    verdict = report.report([compare("swear", "target", scores(9, 10), scores(6, 10))]).verdict
    assert "10 examples show a change from 67" in verdict.reasons[0]


def test_a_report_shows_itself_in_a_notebook() -> None:
    """Else a notebook prints pages of numbers, or runs what somebody named a task."""
    named = replace(UNCHANGED, task="<script>alert(1)</script>")
    found = report.report([REMOVED, named], null=STRONG)
    assert repr(found) == "<EvalReport of 2 tasks: swear 98.7 -> 2.0 %; met>"
    page = found._repr_html_()
    assert page.count("<tr>") == 3 and "<td>swear</td><td>target</td><td>150</td><td>98.7</td>" in page
    assert "<script>" not in page
