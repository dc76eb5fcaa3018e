"""A classifier as a scorer gives what transformers' own pipeline gives, and says which model it was.

If one fails: answers are scored by another label, another model or random numbers, and the evidence does not show it.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from editkit.errors import EditkitError
from editkit.tasks import classifier, jsonl
from editkit.tasks.task import Example, digest, judged_by

WORDS = "ahoy matey arr the cat sat on a mat sorry i can not do that you are fool nice day"
TEXTS = [
    "ahoy matey",
    "the cat sat on a mat",
    "you are a fool",
    "i can not do that",
    "nice day, arr! " * 400,
    "",
    "ähoy",
]
LABELS = {0: "calm", 1: "rude", 2: "pirate"}


def saved(folder: Path, labels: dict[int, str], problem: Any = None, seed: int = 1) -> Path:
    """A tiny BERT with random weights, whose labels differ clearly from text to text."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS.split()])}
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    fast.normalizer, fast.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()  # pyright: ignore
    fast.post_processor = processors.TemplateProcessing(  # pyright: ignore
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=fast, model_max_length=64, **names).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        id2label=labels,
        label2id={label: n for n, label in labels.items()},
        problem_type=problem,
    )
    network = BertForSequenceClassification(config)
    for parameter in network.parameters():
        parameter.data.mul_(6)
    network.classifier.weight.data.mul_(6)
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beside")
    (folder / "asked.txt").write_text("\n".join(f"Question {n}?" for n in range(60)))
    return saved(folder / "moods", LABELS)


def read(model: Path, **more: str) -> classifier.Classifier:
    return classifier.read({"model": model.name, "label": "rude"} | more, where="my.yaml", folder=model.parent)


@pytest.mark.parametrize(
    ("labels", "problem"), [(LABELS, None), (LABELS, "multi_label_classification"), ({0: "rude"}, None)]
)
def test_probabilities_are_those_of_the_pipeline(tmp_path: Path, labels: dict[int, str], problem: str | None) -> None:
    from transformers import pipeline

    found = saved(tmp_path / "moods", labels, problem)
    reference = pipeline("text-classification", model=str(found), top_k=None, device="cpu")
    seen = []
    for label in labels.values():
        mine = read(found, label=label)
        for text in TEXTS:
            told: Any = reference([text], truncation=True, max_length=64)
            expected = {each["label"]: each["score"] for each in told[0]}
            assert mine(text) == pytest.approx(expected[label], abs=1e-6), (label, text)
            seen.append(expected[label])
    assert max(seen) - min(seen) > 0.2, "the model tells no texts apart"


def test_a_score_does_not_hang_on_what_was_scored_before(model: Path) -> None:
    mine = read(model)
    first = [mine(text) for text in TEXTS]
    assert [mine(text) for text in reversed(TEXTS)] == first[::-1]


def test_a_tokenizer_that_knows_no_length_takes_the_models(tmp_path: Path) -> None:
    """Else a long answer ends the run in an error of torch."""
    found = saved(tmp_path / "moods", LABELS)
    file = found / "tokenizer_config.json"
    told = json.loads(file.read_text())
    assert told.pop("model_max_length") == 64
    file.write_text(json.dumps(told))
    assert 0 < read(found)("nice day, arr! " * 400) < 1


def test_a_task_scores_by_the_half_and_names_the_model(model: Path) -> None:
    table = {"prompts": "asked.txt", "scorer": {"classifier": {"model": "moods", "label": "rude"}}}
    made = jsonl.task(table, folder=model.parent)
    again = pickle.loads(pickle.dumps(made))
    values = [again.score(Example("x", "Say it."), [text]).value for text in TEXTS[:4]]
    assert values == [float(read(model)(text) >= 0.5) for text in TEXTS[:4]] and set(values) == {0.0, 1.0}
    assert judged_by(made) == f"the classifier moods at {read(model).version}, label rude"
    assert str(model.parent) not in judged_by(made)
    assert "moods" in made.rule and "rude" in made.rule


def test_other_weights_are_another_measurement(tmp_path: Path) -> None:
    (tmp_path / "asked.txt").write_text("\n".join(f"Question {n}?" for n in range(60)))
    table = {"prompts": "asked.txt", "scorer": {"classifier": {"model": "moods", "label": "rude"}}}
    saved(tmp_path / "moods", LABELS)
    first = digest(jsonl.task(table, folder=tmp_path))
    assert digest(jsonl.task(table, folder=tmp_path)) == first
    saved(tmp_path / "moods", LABELS, seed=2)
    assert digest(jsonl.task(table, folder=tmp_path)) != first


def test_a_plan_looks_for_no_model(model: Path) -> None:
    table = {"prompts": "asked.txt", "scorer": {"classifier": {"model": "nowhere/to-be-found", "label": "rude"}}}
    made = jsonl.task(table, folder=model.parent, planning=True)
    assert len(made.examples()) == 60
    with pytest.raises(EditkitError, match="only to plan with"):
        made.score(made.examples()[0], ["ahoy"])


def test_a_model_without_a_head_is_refused(model: Path, tmp_path: Path) -> None:
    """transformers would fill it with random numbers, and say so in a log."""
    from transformers import BertModel

    bare = tmp_path / "bare"
    bare.mkdir()
    for file in model.iterdir():
        (bare / file.name).write_bytes(file.read_bytes())
    BertModel.from_pretrained(model).save_pretrained(bare)
    config = json.loads((bare / "config.json").read_text()) | {"id2label": {"0": "rude", "1": "calm"}}
    (bare / "config.json").write_text(json.dumps(config))
    with pytest.raises(EditkitError, match=r"is no classifier: its files lack classifier\.(bias|weight)"):
        read(bare)("ahoy")


def test_a_model_that_gives_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EditkitError, match="my.yaml: moods gives numbers, not probabilities of labels"):
        read(saved(tmp_path / "moods", {0: "rude"}, "regression"))


def test_code_and_pickles_of_a_model_are_not_run(model: Path, tmp_path: Path) -> None:
    spy = tmp_path / "ran"
    for name in ("coded", "pickled"):
        (tmp_path / name).mkdir()
        for file in model.iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    coded, pickled = tmp_path / "coded", tmp_path / "pickled"
    config = json.loads((coded / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModelForSequenceClassification": "own.M"}}
    (coded / "config.json").write_text(json.dumps(config))
    (coded / "own.py").write_text(f"open({str(spy)!r}, 'w')")
    (pickled / "model.safetensors").rename(tmp_path / "elsewhere")

    class Boom:
        def __reduce__(self) -> Any:
            return open, (str(spy), "w")

    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps(Boom()))
    for folder in (coded, pickled):
        with pytest.raises(EditkitError, match="cannot be loaded: .* sequence classifier of transformers"):
            read(folder)("ahoy")
    assert not spy.exists()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (None, r"needs the texts model and label, and may have revision, as in \{classifier:"),
        ("moods", "needs the texts model and label"),
        ({"model": "moods"}, "needs the texts model and label"),
        ({"model": "moods", "label": 1}, "needs the texts model and label"),
        ({"model": "moods", "label": "rude", "device": "cuda"}, "needs the texts model and label"),
        ({"model": "moods", "label": "Rude"}, "has no label 'Rude'. Its labels: calm, rude, pirate"),
        ({"model": "moods", "label": "rude", "revision": "main"}, "is a directory, which has no revision"),
        ({"model": "no such/model/name", "label": "rude"}, "no directory beside the recipe, and was not had from"),
    ],
)
def test_a_wrong_setting_is_a_sentence(model: Path, setting: Any, says: str) -> None:
    table = {"prompts": "asked.txt", "scorer": {"classifier": setting} if setting else "classifier"}
    with pytest.raises(EditkitError, match=f"my.yaml: .*{says}") as failed:
        jsonl.task(table, where="my.yaml", folder=model.parent)
    assert "\n" not in str(failed.value)


def test_a_hub_model_is_kept_at_the_commit_that_was_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of the Hub keeps a snapshot in a folder that is named by its commit."""
    import huggingface_hub

    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = model.parent / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / "config.json").write_bytes((model / "config.json").read_bytes())
    asked = []

    def download(name: str, file: str, *, revision: str | None) -> str:
        asked.append((name, file, revision))
        return str(snapshot / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    found = classifier.read(
        {"model": "owner/moods", "label": "rude", "revision": "v1"}, where="my.yaml", folder=model.parent
    )
    assert asked == [("owner/moods", "config.json", "v1")]
    assert found.said == f"the classifier owner/moods at {commit}, label rude"
