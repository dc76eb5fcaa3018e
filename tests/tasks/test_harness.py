"""lm-eval tasks as ours: the same answers get the same scores as in lm-eval's own loop, offline, on real samples.

If one fails: a score called `lm_eval:...` is not lm-eval's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from editkit.errors import EditkitError
from editkit.tasks import harness
from editkit.tasks.harness import HarnessTask
from editkit.tasks.jsonl import Choices
from editkit.tasks.task import Generate, Likelihood, Loglikelihood, Output, Request, Task, digest

pytest.importorskip("lm_eval", reason="needs the extra: pip install 'editkit[eval]'")

pytestmark = pytest.mark.commit
DATA = Path(__file__).parents[3] / "shared" / "data"
HERE = pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data sets in ../shared/data")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def acc(*names: str) -> list[dict[str, Any]]:
    return [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in names]


GSM8K: dict[str, Any] = {
    "task": "gsm8k-sample",
    "dataset_path": "json",
    "dataset_kwargs": {
        "data_files": {"train": str(DATA / "gsm8k/train-20.jsonl"), "test": str(DATA / "gsm8k/test-200.jsonl")}
    },
    "training_split": "train",
    "fewshot_split": "train",
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "Question: {{question}}\nAnswer:",
    "doc_to_target": "{{answer}}",
    "num_fewshot": 2,
    "metric_list": [{**acc("exact_match")[0], "ignore_case": True, "regexes_to_ignore": [",", "(?s).*#### "]}],
    "generation_kwargs": {"until": ["Question:"], "do_sample": False, "max_gen_toks": 99},
    "filter_list": [
        {"name": "strict-match", "filter": [{"function": "regex", "regex_pattern": "#### (\\-?[0-9.,]+)"}]},
        {
            "name": "flexible-extract",
            "filter": [
                {"function": "regex", "group_select": -1, "regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)"},
                {"function": "take_first"},
            ],
        },
    ],
}
GSM8K["filter_list"][0]["filter"].append({"function": "take_first"})

MMLU: dict[str, Any] = {
    "task": "mmlu-sample",
    "dataset_path": "csv",
    "dataset_kwargs": {
        "data_files": {
            "dev": str(DATA / "mmlu/dev/abstract_algebra_dev.csv"),
            "test": str(DATA / "mmlu/test/abstract_algebra_test.csv"),
        }
    },
    "fewshot_split": "dev",
    "fewshot_config": {"sampler": "first_n"},
    "test_split": "test",
    "num_fewshot": 3,
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}\nA. {{choice0}}\nB. {{choice1}}\nC. {{choice2}}\nD. {{choice3}}\nAnswer:",
    "doc_to_choice": ["A", "B", "C", "D"],
    "doc_to_target": "{{answer}}",
    "metric_list": acc("acc", "acc_norm"),
}

ARC: dict[str, Any] = {
    "task": "arc-sample",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(DATA / "arc/arc-challenge-200.jsonl")}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{instruction}}\nThe answer is",
    "doc_to_choice": ["answer1", "answer2", "answer3", "answer4"],
    "doc_to_target": "{{answer}}",
    "metric_list": acc("acc"),
}


def sums(folder: Path, **changes: Any) -> dict[str, Any]:
    """A small task of our own, as its lm-eval settings: ``changes`` replace some of them."""
    rows = [{"a": n, "b": n + 1, "sum": 2 * n + 1} for n in range(12)]
    (folder / "sums.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "sums.jsonl")}},
        "test_split": "test",
        "output_type": "loglikelihood",
        "doc_to_text": "{{a}} plus {{b}} is",
        "doc_to_target": "{{sum}}",
        "metric_list": acc("acc"),
    } | changes


def make(spec: dict[str, Any], **table: Any) -> HarnessTask:
    found = harness.task({"lm_eval": spec, **table}, allow_python=True)
    assert isinstance(found, HarnessTask)
    return found


def _number(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:4], "big")


def answer(request: Request) -> Output:
    """A model that answers at random, but always the same."""
    if isinstance(request, Generate):
        return f"The total is {_number(request.prompt) % 30}, so #### {_number(request.prompt) % 31}"
    number = _number(request.prompt, request.continuation)
    return Likelihood(-1 - number % 1000 / 100, 1, number % 2 == 0)


def reference(spec: dict[str, Any], metric: str, filter: str) -> list[float]:
    """The same model in lm-eval's own loop: one score per document, in order."""
    lm_eval, models, tasks = map(import_module, ("lm_eval", "lm_eval.api.model", "lm_eval.tasks"))

    class Model(models.LM):
        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            answers = [answer(Loglikelihood(*request.args)) for request in requests]
            return [(a.logprob, a.greedy) for a in answers if isinstance(a, Likelihood)]

        def generate_until(self, requests: list[Any]) -> list[str]:
            return [str(answer(Generate(request.args[0]))) for request in requests]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise NotImplementedError

    result = lm_eval.simple_evaluate(
        Model(),
        tasks=[dict(spec)],
        task_manager=tasks.TaskManager(include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    samples = [row for row in result["samples"][spec["task"]] if row["filter"] == filter]
    return [float(row[metric]) for row in sorted(samples, key=lambda row: row["doc_id"])]


@HERE
@pytest.mark.parametrize(
    ("spec", "metric", "filter"),
    [
        (GSM8K, "exact_match", "flexible-extract"),
        (GSM8K, "exact_match", "strict-match"),
        (MMLU, "acc_norm", "none"),
        (MMLU, "acc", "none"),
        (ARC, "acc", "none"),
    ],
    ids=lambda value: value["task"] if isinstance(value, dict) else value,
)
def test_scores_equal_those_of_the_harness_itself(spec: dict[str, Any], metric: str, filter: str) -> None:
    found = make(spec, metric=metric, filter=filter)
    assert isinstance(found, Task)
    ours = [
        found.score(example, [answer(request) for request in found.requests(example)]).value
        for example in found.examples()
    ]
    assert ours == reference(spec, metric, filter)
    assert 0 < sum(ours) < len(ours)


@HERE
def test_requests_are_the_harness_prompts() -> None:
    found = make(GSM8K)
    request = found.requests(found.examples()[0])[0]
    assert isinstance(request, Generate)
    assert (request.max_new_tokens, request.stop, request.chat) == (99, ("Question:",), False)
    assert request.prompt.count("Question:") == 3 and request.prompt.endswith("farmers' market?\nAnswer:")
    assert found.examples()[0].prompt.startswith("Question: Janet")
    none = make(GSM8K, num_fewshot=0, chat=True).requests(found.examples()[0])[0]
    assert isinstance(none, Generate) and none.prompt.count("Question:") == 1 and none.chat


@HERE
def test_settings_and_their_defaults() -> None:
    assert (make(GSM8K).filter, make(GSM8K).metric, make(GSM8K).chance) == ("flexible-extract", "exact_match", 0)
    mmlu = make(MMLU)
    assert (mmlu.metric, mmlu.chance, mmlu.format, len(mmlu.examples())) == ("acc_norm", 0.25, "choice-letter", 100)
    assert (make(ARC).format, make(ARC, chance=0.1, name="ARC").chance) == ("choice-text", 0.1)
    assert make(ARC).name == "lm-eval-arc-sample"


def test_ids_follow_the_documents(tmp_path: Path) -> None:
    before = [example.id for example in make(sums(tmp_path)).examples()]
    spec = sums(tmp_path)
    lines = (tmp_path / "sums.jsonl").read_text().split("\n")
    (tmp_path / "sums.jsonl").write_text("\n".join([*reversed(lines), lines[0]]))
    after = [example.id for example in make(spec).examples()]
    assert after[:-1] == before[::-1]
    assert after[-1] == f"{before[0]}-2"


def test_what_judges_is_part_of_what_scores_are_kept_under(tmp_path: Path) -> None:
    first, again = make(sums(tmp_path)), make(sums(tmp_path))
    other = make(sums(tmp_path, doc_to_target="{{sum + 1}}"))
    assert digest(first) == digest(again) != digest(other)


def test_collapse_is_invalid_not_wrong(tmp_path: Path) -> None:
    choices = make(
        sums(tmp_path, output_type="multiple_choice", doc_to_choice=["1", "2", "3"], doc_to_target="{{a % 3}}")
    )
    example = choices.examples()[0]
    same, nan = Likelihood(-2, 1, False), Likelihood(float("-inf"), 1, False)
    assert choices.score(example, [same, same, same]).note == "no preference"
    assert choices.score(example, [same, nan, same]).note == "no finite likelihood"
    assert choices.score(example, [Likelihood(-1, 1, False), same, same]).valid
    text = make(sums(tmp_path, output_type="generate_until", metric_list=acc("exact_match")))
    assert not text.score(text.examples()[0], [" \n"]).valid
    assert text.score(text.examples()[0], ["seven"]).valid


def test_knowledge_is_asked_as_text_instead_of_letters(tmp_path: Path) -> None:
    rows = [{"question": f"Capital {n}?", "choices": ["Rome", "Paris"], "answer": n % 2} for n in range(4)]
    spec = sums(tmp_path, output_type="multiple_choice", doc_to_choice=["A", "B"], doc_to_target="answer")
    spec["doc_to_text"] = "{{question}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nAnswer:"
    (tmp_path / "sums.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    letters = make(spec)
    texts = harness.task({"lm_eval": spec, "text": True}, allow_python=True)
    assert isinstance(texts, Choices)
    assert (letters.format, texts.format, texts.chance) == ("choice-letter", "choice-text", 0.5)
    assert [example.id for example in texts.examples()] == [example.id for example in letters.examples()]
    assert texts.requests(texts.examples()[1])[1] == Loglikelihood(
        "Question: Capital 1?\nAnswer:", " Paris", chat=False
    )
    assert texts.examples()[1].facts["answer"] == "Paris"


def test_folders_of_tasks_groups_and_tags(tmp_path: Path) -> None:
    import yaml

    for name in ("one", "two"):
        spec = sums(tmp_path, task=f"sums-{name}", tag=["my-tag"])
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "group.yaml").write_text(yaml.safe_dump({"group": "my-group", "task": ["sums-two", "sums-one"]}))
    tag, group = (harness.task(name, include=tmp_path, allow_python=True) for name in ("my-tag", "my-group"))
    assert len(tag.examples()) == 24
    assert tag.examples() == group.examples()
    assert {example.facts["task"] for example in tag.examples()} == {"sums-one", "sums-two"}


def test_code_of_the_model_is_refused_before_any_of_it_is_loaded(tmp_path: Path) -> None:
    import yaml

    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef score(doc, results): ...\n")
    text = yaml.safe_dump(sums(tmp_path, task="code", unsafe_code=True))
    (tmp_path / "code.yaml").write_text(text + "process_results: !function mine.score\n")
    (tmp_path / "group.yaml").write_text(yaml.safe_dump({"group": "codes", "task": [{"task": "code"}]}))
    for name in ("code", "codes"):
        with pytest.raises(EditkitError, match=f"'{name}' runs code that the model wrote.*sandbox"):
            harness.task(name, include=tmp_path, allow_python=True)
    with pytest.raises(EditkitError, match="runs code that the model wrote"):
        make(sums(tmp_path, unsafe_code=True))
    assert not (tmp_path / "ran").exists()


def test_foreign_templates_need_leave(tmp_path: Path) -> None:
    spec = sums(tmp_path, doc_to_text="{{ ''.__class__.__mro__ }}")
    for call in (
        lambda: harness.task({"lm_eval": spec}, where="my.yaml"),
        lambda: harness.task("sums", where="my.yaml", include=tmp_path),
    ):
        with pytest.raises(EditkitError, match=r"my\.yaml: .* can run Python .*--allow-code-execution"):
            call()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"output_type": "loglikelihood_rolling", "metric_list": acc("word_perplexity")}, "it measures perplexity"),
        (
            {"metric_list": [{"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}]},
            "perplexity",
        ),
        ({"repeats": 4}, "samples 4 answers"),
        ({"output_type": "multiple_choice", "doc_to_choice": ["1", "3"], "metric_list": acc("f1")}, r"\(f1\)"),
        ({"dataset_kwargs": {"data_files": {"test": "/nowhere/gone.jsonl"}}}, "cannot be loaded: .*gone"),
        ({"dataset_path": "nobody/nothing", "dataset_kwargs": {}}, "cannot be loaded: .*HF_HUB_OFFLINE=1"),
        ({"doc_to_text": "{{missing}}"}, "cannot be loaded: .*missing"),
    ],
)
def test_what_cannot_be_scored_per_example_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(EditkitError, match=f"(?s)'sums'.*{says}"):
        make(sums(tmp_path, **change))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda spec: make(spec, metric="bleu"), "bleu"),
        (lambda spec: make(spec, filter="strict"), "no filter 'strict'; it has none"),
        (lambda spec: make(spec, metrik="acc"), "has the keys lm_eval"),
        (lambda spec: harness.task({}), "has the keys lm_eval"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, call: Callable[[dict[str, Any]], object], says: str) -> None:
    with pytest.raises(EditkitError, match=says):
        call(sums(tmp_path))
