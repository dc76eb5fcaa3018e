"""The card says what the report says, and nothing else.

If one fails: what people read on the Hub is not what was measured.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from editkit.errors import EditkitError
from editkit.evidence.exhibits import Audit, Exhibits
from editkit.evidence.frontier import FrontierPoint
from editkit.evidence.hardening import Hardening, Round
from editkit.evidence.intervals import Interval
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import BaseModel, Provenance
from editkit.evidence.report import EvalReport
from editkit.render import card, page, wording
from editkit.render.inert import Inert
from editkit.units import Neuron
from tests.made_evidence import evidence, neurons

STATUSES = ("met", "goal-missed", "too-much-damage")


def rendered(found: Outcome, **changes) -> str:
    return card.render(replace(found, provenance=replace(found.provenance, **changes)))


def front_matter(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


def table(text: str, first: str) -> list[list[str]]:
    """The body rows of the table whose header starts with ``first``."""
    lines = text.split("\n")
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" `*") for cell in line.strip("|").split("|")])
    return rows


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("<", "").replace(",", ""))


def perturbed(report: EvalReport, seed: int) -> EvalReport:
    """The same report with other numbers in every cell."""

    def interval(value: Interval, place: int) -> Interval:
        shift = ((seed * 7 + place * 3) % 11) / 100
        return Interval(value.mean - shift, value.low - shift - 0.013, value.high - shift + 0.017)

    rows = tuple(
        replace(
            row,
            n=row.n + seed + place,
            before=interval(row.before, place),
            after=interval(row.after, place + 1),
            delta=interval(row.delta, place + 2),
            p=0.011 * (place + 1),
            p_holm=0.017 * (place + 1) + seed / 1000,
            collapse_after=place / 100,
        )
        for place, row in enumerate(report.rows)
    )
    return replace(report, rows=rows)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("status", STATUSES)
def test_the_table_parsed_back_is_the_report(status, seed):
    found = evidence(status)
    found = replace(found, report=perturbed(found.report, seed) if seed else found.report)
    record = json.loads(found.report.to_json())
    rows = table(rendered(found), "task")
    assert len(rows) == len(record["rows"]) + 2  # and the random and the strong heads
    for cells, name in zip(rows[-2:], ("random", "strong"), strict=True):
        null = record[f"{name}_heads"]
        assert cells[0] == f"{null['sets']} sets of as many {name} heads*, on `swear"
        assert number(cells[7]) == pytest.approx(100 * math.fsum(null["deltas"]) / null["sets"], abs=0.0501)
    for cells, row in zip(rows, record["rows"], strict=False):
        task, role, split, n, clusters, before, after, change, span, p, chance, collapse = cells
        assert (task, role.split(":")[0], split, int(n)) == (row["task"], row["role"], row["split"], row["n"])
        assert clusters == str(row["clusters"] or "–")
        low, high = span.split(" to ")
        shown = [before, after, change, low, high, chance, collapse]
        true = [row["before"]["mean"], row["after"]["mean"], row["delta"]["mean"], row["delta"]["low"]]
        true += [row["delta"]["high"], row["chance"], row["collapse"]["after"]]
        # One decimal of a percentage: half of 0.1 is 0.05, and a hair for the binary fractions.
        assert [number(text) for text in shown] == pytest.approx([100 * value for value in true], abs=0.0501)
        assert number(p) == pytest.approx(row["p_holm"], abs=0.0011)


def test_new_examples_of_clusters_already_used_are_called_so_in_the_first_lines():
    """Where a split divides clusters, no reader takes the examples for templates that nothing has seen."""
    found = evidence("met")
    said = {}
    for divided in (True, False):
        rows = tuple(replace(row, divided=divided, clusters=row.n // 5) for row in found.report.rows)
        text = rendered(replace(found, report=replace(found.report, rows=rows)))
        said[divided] = text[: text.index("## Before and after")], text
    first, whole = said[True]
    target = next(row for row in found.report.rows if row.role == "target")
    assert f"{target.n} new examples of {target.n // 5} clusters already used" in first
    assert all(f"`{row.task}`" in whole[whole.index("those of") : whole.index("are new fillings")] for row in rows)
    assert "already used" not in said[False][1] and "held-out examples in" in said[False][0]


@pytest.mark.parametrize(
    ("number", "fresh", "said"),
    [
        (1, None, "the first: no other edit of this base was judged by these examples, as far as"),
        (3, False, "number 3: 2 other edits of this base were judged by these examples before; who looks often"),
        (1, True, "the first at fresh examples: no earlier run of this store had looked at them |"),
        (2, True, "had looked at them; another edit of this base was judged by the same tasks before; who looks often"),
        (
            3,
            True,
            "had looked at them; 2 other edits of this base were judged by the same tasks before; who looks often",
        ),
    ],
)
def test_how_often_the_examples_were_looked_at_is_said(number, fresh, said):
    """Else the best of many tries reads like a first one, or fresh examples like old ones."""
    found = evidence()
    assert said in rendered(found, look=number, fresh=fresh)
    origin = Provenance.from_json(replace(found.provenance, look=number, fresh=fresh).to_json())
    assert (origin.look, origin.fresh) == (number, fresh)


JUDGE = 'the judge m-7b, which calls itself m-7b | <b>v2</b>, asked "Is it rude?"'


@pytest.mark.parametrize("roles", [("target",), ("target", "retain"), ("retain",), ()])
@pytest.mark.parametrize("render", [rendered, page.render])
def test_models_that_scored_are_named_and_a_verdict_that_hangs_on_one_alone_says_so(render, roles):
    """Nobody takes a model's opinion for a rule's result."""
    found = evidence("met")
    rows = tuple(replace(row, judged_by=JUDGE if row.role in roles else "") for row in found.report.rows)
    text = unescape(render(replace(found, report=replace(found.report, rows=rows))))
    assert ("scored by a model alone" in text) == ("target" in roles)
    scored = re.search(rf"Scored by a model: (.*?)\. It is {re.escape(JUDGE)}\.", text)
    named = set(scored[1].split(", ")) if scored else set()
    assert named == {row.task for row in rows if row.role in roles}


def test_one_target_that_a_rule_scored_takes_the_sentence_away():
    found = evidence("met")
    [target] = [row for row in found.report.rows if row.role == "target"]
    others = [row for row in found.report.rows if row.role != "target"]
    rows = (replace(target, judged_by=JUDGE), replace(target, task="by-rule"), *others)
    assert "scored by a model alone" not in unescape(rendered(replace(found, report=replace(found.report, rows=rows))))


@pytest.mark.parametrize("status", STATUSES)
def test_every_number_in_the_text_is_in_the_evidence(status):
    found = evidence(status)
    text = rendered(found).split("---\n", 2)[2]
    text = re.sub(r"```.*?```|`[^`]*`|<!--.*?-->|&#\d+;", " ", text, flags=re.DOTALL)
    text = re.sub(r"L\d+H\d+|arXiv[ :]\d+\.\d+|95 %|sha256|8 or 4 bits", " ", text)
    text = re.sub(r"^- (Versions|Seeds):.*$", " ", text, flags=re.MULTILINE)
    shown = {token.replace("−", "-").lstrip("+<") for token in re.findall(r"[−+<-]?\d+(?:,\d{3})*(?:\.\d+)?%?", text)}
    assert len(shown) > 60, "the text has lost its numbers"
    assert shown - known_numbers(found) == set()


def known_numbers(found: Outcome) -> set[str]:
    """Every way in which a number of the evidence may be written."""
    values: list[float] = []

    def collect(value) -> None:
        if isinstance(value, dict):
            for part in value.values():
                collect(part)
        elif isinstance(value, list):
            for part in value:
                collect(part)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            values.append(value)

    collect(json.loads(found.report.to_json()))
    collect(json.loads(found.localization.to_json()))
    report, null = found.report, found.report.random_heads
    assert null is not None
    assert report.strong_heads is not None
    values += [math.fsum(each.deltas) / len(each.deltas) for each in (null, report.strong_heads)]
    values.append(math.fsum(row.delta.mean for row in wording.retained(report)) / len(wording.retained(report)))
    known = {str(len(found.edit.units)), "144", "6", "8", "0.001"}
    for value in values:
        known |= {wording.percent(value), wording.points(value), wording.probability(value), wording.count(value)}
        known.add(wording.effect(value))
        known |= {f"{value:.2f}", f"{value:.3g}", f"{value:.0%}", f"{100 * value:+.1f}", f"{100 * value:.0f}%"}
    # The verdict's own sentences: what the target kept, and the interval of the mean damage.
    for reason in report.verdict.reasons:
        known |= set(re.findall(r"[+-]?\d+\.?\d*%?", reason))
    return {text.replace("−", "-").lstrip("+<") for text in known}


def test_the_front_matter_is_what_the_hub_reads_back():
    found = evidence()
    base = BaseModel(
        "meta-llama/Llama-3.2-1B-Instruct",
        "9213176",
        "hub",
        "llama3.2",
        license_link="https://example.org/LICENSE",
        notices=("Built with Llama",),
        pipeline_tag="text-generation",
        tags=("llama",),
        languages=("en", "de"),
    )
    text = rendered(found, base=base)
    data: Any = ModelCard(text).data
    assert data.base_model == base.model
    assert data.to_dict()["base_model_relation"] == "finetune"
    assert (data.license, data.license_link) == ("llama3.2", "https://example.org/LICENSE")
    assert (data.library_name, data.pipeline_tag, data.language) == ("transformers", "text-generation", ["en", "de"])
    assert {"editkit", "capability-removal", "llama"} <= set(data.tags or [])
    assert data.model_name == "Llama-3.2-1B-Instruct-no-swear"
    assert data.eval_results is not None
    for result, row in zip(data.eval_results, found.report.rows, strict=True):
        assert (result.dataset_name, result.dataset_split) == (row.task, row.split)
        assert result.metric_value == pytest.approx(row.after.mean, abs=5e-5)
        assert result.metric_args is not None
        assert result.metric_args["change"] == pytest.approx(row.delta.mean, abs=5e-5)
    assert "Built with Llama" in text


@pytest.mark.parametrize(("form", "relation", "library"), [("lora", "adapter", "peft")])
def test_other_forms_say_how_they_relate_to_the_base(form, relation, library):
    text = rendered(evidence(), base=BaseModel("org/model", "abc", "hub"), format=form)
    data = front_matter(text)
    assert (data["base_model_relation"], data["library_name"]) == (relation, library)
    assert "editkit undo" not in text


@pytest.mark.parametrize(
    "path", ["/home/alice/models/secret", "./models/x", "models/x", "C:\\Users\\alice\\x", "~/x", "../x"]
)
def test_a_local_folder_is_never_published_as_a_base(path):
    text = rendered(evidence(), base=BaseModel(path, "sha256:ab", "local"))
    assert "base_model" not in front_matter(text)
    assert "alice" not in text and "/models" not in text


@pytest.mark.parametrize("name", ["/etc/passwd", "a/b/c", "org/..", "-x/y", "org/na me", "", "org/x\nlicense: mit"])
def test_what_is_no_hub_id_is_not_published_even_if_it_is_called_one(name):
    assert "base_model" not in front_matter(rendered(evidence(), base=BaseModel(name, None, "hub")))


def test_an_unknown_licence_is_not_invented():
    text = rendered(evidence(), base=BaseModel("org/model", None, "hub"))
    assert "license" not in front_matter(text)
    assert "names no licence" in text
    named = front_matter(
        rendered(evidence(), base=BaseModel("org/m", None, "hub", "My Terms 1", license_link="LICENSE"))
    )
    assert (named["license"], named["license_name"], named["license_link"]) == ("other", "My Terms 1", "LICENSE")


@pytest.mark.parametrize("status", ["goal-missed", "too-much-damage"])
def test_a_verdict_that_was_not_met_is_said_on_top(status):
    found = evidence(status)
    top = rendered(found).split("\n## ")[0]
    assert "Criteria not met" in top and top.index("Criteria not met") < top.index("| |")
    assert "Attempt to remove" in top and ", removed from" not in top
    assert "Criteria not met" not in rendered(evidence())


def test_a_removal_of_neurons_speaks_of_neurons_alone():
    """Counts of its own kind, no head map, and only effects that were measured."""
    text = rendered(neurons())
    assert "Zeroing 40 of 576 neurons" in text and "50 sets of as many random neurons" in text
    assert "editkit/neurons.png" in text and "editkit/heads.png" not in text and "niversal heads" not in text
    assert len(table(text, "neuron")) == 8 and "Of 32 neurons the effect alone was not measured." in text
    assert "mlp-neurons" in front_matter(text)["tags"] and "attention-heads" not in front_matter(text)["tags"]


def test_what_hardening_did_is_on_card_and_page_and_its_neurons_are_counted():
    """Neurons of the rounds were never in the order of the search."""
    plain = neurons()
    more = frozenset({*plain.edit.units, Neuron(0, 95), Neuron(1, 95)})
    rounds = (Round(40, 0.0, 0.287), Round(42, 0.0, 0.037))
    point = FrontierPoint(tuple(more), {"swear": 0.0}, {"rhyme": 0.0})
    hardening = Hardening(25, 3e-5, 60, 80, 0.412, rounds)
    outcome = replace(
        plain,
        edit=replace(plain.edit, units=more),
        exhibits=replace(plain.exhibits, frontier=(point,), hardening=hardening),
    )
    text = card.render(outcome)
    said = "28.7 % with 40 neurons out; 3.7 % with 42 neurons out; without edit and training, 41.2 %."
    assert "Of 34 neurons the effect alone was not measured." in text
    assert said in text and said in unescape(page.render(outcome))
    assert "Hardened" not in card.render(plain) + page.render(plain)


def test_a_task_that_may_be_lost_is_in_the_first_sentence():
    """The worst retained task alone would hide what was given up for the removal."""
    found = evidence()
    lost = replace(found.report.rows[1], role="also", after=Interval(0.31, 0.2, 0.4))
    text = rendered(replace(found, report=replace(found.report, rows=(*found.report.rows, lost))))
    assert f"Not retained: `{lost.task}` {wording.percent(lost.before.mean)} to 31.0 %." in text


def test_collapse_is_named_beside_the_score():
    found = evidence("goal-missed")
    broken = replace(found.report.rows[0], collapse_after=0.825)
    text = rendered(replace(found, report=replace(found.report, rows=(broken, *found.report.rows[1:]))))
    top = text.split("\n## ")[0]
    assert top.count("82.5 % of the answers collapsed and count as not removed") == 2
    assert "answers collapsed and count" not in rendered(found)


def test_an_override_is_recorded():
    text = rendered(evidence("goal-missed"), override="swear kept 41 %")
    top = text.split("\n## ")[0]
    assert "Published although its verdict was not met" in top and "What was not met: swear kept 41 %" in top
    assert "Published although" not in rendered(evidence("goal-missed"))


def test_evidence_without_a_model_does_not_say_how_to_load_one():
    text = rendered(evidence("goal-missed"), format="evidence")
    assert "from_pretrained" not in text and "editkit undo" not in text and "no model was written" in text
    assert "model-index" not in front_matter(text), "there is no model whose results these were"


@pytest.mark.parametrize("status", ["goal-missed", "too-much-damage"])
def test_a_refused_run_claims_no_removal(status):
    text = rendered(evidence(status), format="evidence")
    assert not re.search(r"(?<!to be )(?<!not )removed", text)
    assert "| **Tried** |" in text and "## The tried heads" in text
    assert "| **Removed** |" in rendered(evidence())


def test_degraded_tasks_are_named_as_such():
    text = rendered(evidence("too-much-damage"))
    assert "a loss beyond the budget is shown: `facts-letter`" in text
    assert "a loss beyond the budget is shown: none" in rendered(evidence())


def test_what_was_audited_is_no_longer_untested():
    found = evidence()
    audited = replace(found, exhibits=Exhibits(audits=(Audit("relearn", "50 steps bring back 12 points.", False),)))
    assert "Relearning: whether" in rendered(found) and "Relearning: whether" not in rendered(audited)
    assert "`relearn`: **did not hold**. 50 steps bring back 12 points." in rendered(audited)


def test_the_template_refuses_text_that_was_not_made_inert():
    with pytest.raises(EditkitError, match="not made inert"):
        card._only_inert("a raw name")
    assert card._only_inert(Inert("safe")) == "safe"


def test_the_same_evidence_gives_the_same_text():
    assert rendered(evidence()) == rendered(evidence())


def test_provenance_and_exhibits_survive_their_files():
    found = evidence()
    provenance = replace(found.provenance, override="why")
    assert Provenance.from_json(provenance.to_json()) == provenance
    exhibits = replace(found.exhibits, audits=(Audit("relearn", "text"),))
    assert Exhibits.from_json(json.dumps(exhibits.to_dict())) == exhibits
    assert Exhibits.from_json("{}") == Exhibits()


@pytest.mark.parametrize("text", ["[]", "{", '{"base": {}}', '{"base": null}', "[" * 100_000])
def test_what_is_no_provenance_is_an_error_that_names_the_file(text):
    with pytest.raises(EditkitError, match="here.json"):
        Provenance.from_json(text, where="here.json")


@pytest.mark.parametrize("text", ["[]", "{", '{"dose": [1]}', '{"transcripts": [{"task": "x"}]}', '{"dose": 3}'])
def test_what_are_no_exhibits_is_an_error_that_names_the_file(text):
    with pytest.raises(EditkitError, match="report.json"):
        Exhibits.from_json(text)


def test_of_equal_losses_the_worst_is_the_least_certain_and_where_none_lost_none_is_named() -> None:
    """Else the first of the alphabet stands for all, or an unchanged task is called the worst change."""
    some = evidence()
    first, *others = [row for row in some.report.rows if row.role == "retain"]

    def with_losses(*losses: tuple[float, float]) -> str:
        spans = [Interval(mean, mean - wide, mean + wide) for mean, wide in losses]
        retained = [replace(row, delta=span) for row, span in zip((first, *others), spans, strict=False)]
        rows = (*(row for row in some.report.rows if row.role == "target"), *retained)
        return rendered(replace(some, report=replace(some.report, rows=rows)))

    named = f"(`{others[0].task}`)"
    assert named in with_losses((-0.02, 0.01), (-0.02, 0.05))
    assert "none of 2 retained tasks scored lower" in with_losses((0.0, 0.01), (0.02, 0.05))
    assert "the one retained task did not score lower" in with_losses((0.0, 0.01))


def test_a_goal_that_was_met_is_met_whatever_the_search_thought_of_it() -> None:
    """Else the card says *not localized*, and the report beside it that the criteria were met."""
    for status, line in (("met", "Criteria met"), ("too-much-damage", "refused"), ("goal-missed", "Not localized")):
        some = evidence(status)
        unsure = replace(some, localization=replace(some.localization, found=False))
        assert wording.conclusion(unsure.localization, unsure.report).line.count(line) == 1, status
        assert wording.conclusion(unsure.localization, unsure.report).met == some.report.verdict.met


def test_some_answers_are_shown_and_what_is_hidden_is_not() -> None:
    some = evidence()
    told = table(rendered(some), "task")
    assert told, "the rows"
    shown = rendered(some).split("<details><summary>Some answers")[1].split("</details>")[0]
    for transcript in some.exhibits.transcripts[:1]:
        assert f"`{transcript.before}`" in shown and f"`{transcript.after}`" in shown
    none = replace(some, exhibits=replace(some.exhibits, transcripts=()))
    assert "Some answers" not in rendered(none)


@pytest.mark.parametrize("repo", ["alice/no-swear", "", None, "alice/x; rm -rf /", "../x y", "a/b\n# c"])
def test_commands_name_a_repository_only_where_it_is_a_name(repo: str | None) -> None:
    text = rendered(evidence(), repo=repo)
    place = "alice/no-swear" if repo == "alice/no-swear" else "THIS_FOLDER"
    assert f"editkit verify {place}" in text and "rm -rf" not in text
