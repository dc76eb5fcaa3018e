"""A task that a model scores goes through measuring and evidence like any other, and says so.

If one fails: a run that goes on pays for its verdicts again, or its evidence does not name the model behind them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editkit.errors import EditkitError
from editkit.evidence.report import EvalReport
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.removal import recipe as recipes
from editkit.removal import remove
from editkit.removal.capability import Capability, capability
from editkit.removal.trial import trial_of
from editkit.tasks.builtin import TASKS
from editkit.workspace import Work
from tests.judge_endpoint import Endpoint, Reply, says, serving
from tests.known_heads import HEADS

JUDGED = "{prompts: asked.jsonl, name: judged, scorer: {judge: {model: m-7b, question: 'Does it swear?'}}}"
RULED = "{prompts: asked.jsonl, name: ruled, scorer: {word: [damn, hell]}}"


def swears(body: dict[str, Any]) -> Reply:
    answer = json.loads(body["messages"][1]["content"].split("\n\n")[1])["answer"]
    return says("yes" if any(word in answer.lower() for word in ("damn", "hell", "crap", "ass")) else "no", "m-7b-v2")


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    rows = [json.dumps({"prompt": each.prompt, "id": each.id}) for each in TASKS["swear"].examples()]
    (tmp_path / "asked.jsonl").write_text("\n".join(rows))
    monkeypatch.setenv("EDITKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as made:
        made.judge = swears
        monkeypatch.setenv("EDITKIT_JUDGE_URL", made.url)
        yield made


def wanted(folder: Path, *targets: str) -> Capability:
    text = f"capability: swear\ntarget: [{', '.join(targets)}]\nretain: [facts]\nexamples: {{report: 12}}\n"
    return capability(recipes.parse(text, where="here"), folder=folder)


def test_evidence_names_the_model_and_nothing_is_asked_twice(
    organism: LanguageModel, endpoint: Endpoint, tmp_path: Path
) -> None:
    def measured() -> EvalReport:
        trial = trial_of(wanted(tmp_path, JUDGED))
        with opened(None) as store:
            return trial.report(trial.asked(Ledger(organism, store), HEADS))

    report = measured()
    told = {row.task: row.judged_by for row in report.rows}
    assert told == {"judged": 'the judge m-7b, which calls itself m-7b-v2, asked "Does it swear?"', "facts": ""}
    assert {row.task: row.judged_by for row in report.noise} == told
    assert report.rows[0].before.mean > 0.5 > report.rows[0].after.mean, "the judge sees the edit"
    asked = len(endpoint.bodies)
    assert 12 <= asked <= 24, "before, after and before again: the last has the answers of the first"
    assert measured() == report and len(endpoint.bodies) == asked, "a store that is lost costs no verdict"
    value = json.loads(report.to_json())
    assert ["judged_by" in row for row in value["rows"]] == [True, False]
    assert EvalReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(("targets", "warned"), [((JUDGED,), True), ((JUDGED, RULED), False), ((RULED,), False)])
def test_a_verdict_that_will_hang_on_a_model_alone_is_said_at_the_start(
    organism: LanguageModel,
    endpoint: Endpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    targets: tuple[str, ...],
    warned: bool,
) -> None:
    class Begun(EditkitError):
        pass

    def able(*_: object) -> None:
        raise Begun("the first question would be asked now")

    monkeypatch.setattr(remove, "able", able)
    run = remove.Run(wanted(tmp_path, *targets), tmp_path / "out")
    with pytest.raises(Begun):
        remove.remove_capability(organism, run, Work(tmp_path / "work", tmp_path / "work" / "m.sqlite"))
    said = [str(each.message) for each in recwarn if "hang on a model's judgement alone (judged)" in str(each.message)]
    assert bool(said) == warned and not endpoint.bodies
