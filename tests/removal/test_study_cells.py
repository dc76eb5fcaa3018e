"""A study and lm-eval tasks on a real model: stories260k, which writes simple English and knows nothing else.

If one fails: a study works on the bundled model alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from editkit.models.language_model import LanguageModel
from editkit.models.placement import Placement
from editkit.removal import study
from editkit.removal.study import Capability, Study
from editkit.removal.study_table import Published, tables
from editkit.tasks import harness
from editkit.tasks.task import Generate, Likelihood, Loglikelihood
from tests.tasks import test_harness
from tests.tasks.test_harness import ARC, GSM8K, MMLU

STORIES = Path(__file__).parents[3] / "shared" / "data" / "models" / "stories260k"
# One retained task is too few to look for universal heads, which is said, and no matter here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:universal heads"),
    pytest.mark.skipif(not STORIES.is_dir(), reason="needs the model in ../shared/data/models/stories260k"),
]

offline = test_harness.offline


@pytest.fixture(scope="module")
def stories() -> LanguageModel:
    from editkit.api import load

    return load(str(STORIES), device="cpu")


def write_choices(path: Path, rows: list[tuple[str, str, str]]) -> None:
    lines = [{"prompt": prompt, "choices": [right, wrong], "answer": right} for prompt, right, wrong in rows]
    path.write_text("\n".join(json.dumps(line) for line in lines))


@pytest.mark.commit
def test_a_study_measures_a_real_model_and_resumes(tmp_path: Path) -> None:
    from editkit.removal.study_cells import Laboratory

    names, things = ("Lily", "Tom", "Ben", "Mia", "Sara"), ("ball", "dog", "cat", "toy")
    pairs = [(name, names[place - 1], thing) for place, name in enumerate(names) for thing in things]
    write_choices(tmp_path / "names.jsonl", [(f"{n} had a {t}. {n} liked the {t}.", n, other) for n, other, t in pairs])
    write_choices(
        tmp_path / "play.jsonl", [(f"{n} saw a {t}. {n} wanted to", "play with it", "of") for n, _, t in pairs]
    )
    write_choices(tmp_path / "happy.jsonl", [(f"{n} and the {t} were very", "happy", "table") for n, _, t in pairs])
    tasks = [{"prompts": f"{name}.jsonl", "scorer": "choice", "chat": False} for name in ("names", "play", "happy")]
    recipe = {"capability": "names", "target": tasks[0], "retain": [tasks[1]]}
    recipe["examples"] = {"locate": 10, "choose": 5, "report": 10}
    grid = Study(
        study="stories",
        models=(str(STORIES),),
        capabilities=(Capability.model_validate({"recipe": recipe, "also": [tasks[2]]}),),
        methods=("halving",),
        heads=(1, 40),
    )
    bench = Laboratory(tmp_path / "work", folder=tmp_path, placement=Placement("cpu"))
    one, all_heads = study.run(grid, work=bench.work, locate=bench.locate, assess=bench.assess)
    assert one.report is not None and all_heads.report is not None
    assert [(row.task, row.role) for row in one.report.rows] == [
        ("names", "target"),
        ("play", "retain"),
        ("happy", "also"),
    ]
    assert one.report.rows[0].before.mean > 0.8 and not one.report.verdict.met
    # Without any head a name cannot be looked up, so the knockout reached the answers.
    assert all_heads.report.rows[0].after.mean < one.report.rows[0].after.mean
    again = list(study.run(grid, work=bench.work, locate=lambda *_: pytest.fail(), assess=lambda *_: pytest.fail()))
    assert again == [one, all_heads]
    assert "**" in tables(grid, again, Published())


def test_a_cell_knows_the_files_it_was_measured_from(tmp_path: Path) -> None:
    from editkit.removal.study_cells import Laboratory

    model, nested = tmp_path / "model", tmp_path / "tasks"
    for name in ("model/config.json", "tasks/own.jsonl", "tasks/own.py", "words.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (nested / "own.yaml").write_text("prompts: own.jsonl\nscorer: {python: 'own:score'}\n")
    recipe = {"capability": "own", "target": "tasks/own.yaml", "retain": ["rhyme", "missing.yaml"]}
    capability = Capability.model_validate({"recipe": recipe, "also": [{"swear": "words.txt"}, "lm-eval:gsm8k"]})
    cell = study.Cell(str(model), capability, "auto", 1, 0)
    bench = Laboratory(tmp_path / "work", folder=tmp_path)
    seen = [bench.basis(cell)]
    assert bench.basis(cell) == seen[0]
    for name in ("model/config.json", "tasks/own.yaml", "tasks/own.jsonl", "tasks/own.py", "words.txt"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + " ")
        seen.append(bench.basis(cell))
    seen.append(Laboratory(tmp_path / "work", folder=tmp_path, placement=Placement(dtype="float16")).basis(cell))
    seen.append(bench.basis(replace(cell, model=study.BUNDLED)))
    assert len(set(seen)) == len(seen) == 8
    (nested / "own.yaml").write_text("prompts: own.yaml\n")  # itself
    assert bench.basis(cell) not in seen
    (nested / "own.yaml").write_text("[")  # named when the task is read, for its cell alone
    assert bench.basis(replace(cell, model="owner/name"))


def test_log_likelihoods_are_those_of_lm_eval(stories: LanguageModel) -> None:
    instance = import_module("lm_eval.api.instance").Instance
    reference = import_module("lm_eval.models.huggingface").HFLM(
        pretrained=stories.network, tokenizer=stories.tokenizer, batch_size=4
    )
    for spec in (MMLU, ARC):
        found = harness.task({"lm_eval": spec, "num_fewshot": 0}, allow_python=True)
        requests = [request for example in found.examples()[:4] for request in found.requests(example)]
        pairs = [(request.prompt, request.continuation) for request in requests if isinstance(request, Loglikelihood)]
        assert len(pairs) == 16
        expected = reference.loglikelihood(
            [instance("loglikelihood", {}, pair, 0) for pair in pairs], disable_tqdm=True
        )
        for ours, (logprob, greedy) in zip(stories.answer(requests, None), expected, strict=True):
            assert isinstance(ours, Likelihood)
            # Batches differ in shape, and sums of logarithms in order.
            assert ours.logprob == pytest.approx(logprob, abs=1e-3)
            assert ours.greedy == greedy


def test_answers_are_those_of_lm_eval(stories: LanguageModel) -> None:
    instance = import_module("lm_eval.api.instance").Instance
    reference = import_module("lm_eval.models.huggingface").HFLM(
        pretrained=stories.network, tokenizer=stories.tokenizer, batch_size=1
    )
    found = harness.task(
        {"lm_eval": GSM8K | {"generation_kwargs": {"until": ["\n"], "max_gen_toks": 24}}, "num_fewshot": 0},
        allow_python=True,
    )
    requests = [Generate("Once upon a time, there was a", 24, False, ("park", "."))]
    requests += [
        part for example in found.examples()[:2] for part in found.requests(example) if isinstance(part, Generate)
    ]
    arguments = [
        (r.prompt, {"until": list(r.stop), "max_gen_toks": r.max_new_tokens, "do_sample": False}) for r in requests
    ]
    expected = reference.generate_until(
        [instance("generate_until", {}, pair, 0) for pair in arguments], disable_tqdm=True
    )
    assert stories.answer(requests, None) == expected
    assert all(expected)
