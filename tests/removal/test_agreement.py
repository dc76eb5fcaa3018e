"""What is shipped must behave as what was measured: the last check before a checkpoint may appear.

If one fails: a checkpoint is published whose card was measured on other weights.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import editkit
from editkit import organism as bundled
from editkit.api import load
from editkit.checkpoints.source import resolve
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError
from editkit.measuring.store import Cell
from editkit.models.language_model import LanguageModel
from editkit.models.loading import load_source
from editkit.removal import remove
from editkit.removal.agreement import TIPPED, Probe, plainly, probe, same_answers, same_model
from editkit.removal.trial import Answers, Sheet
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Generate, Likelihood, Loglikelihood, Output, Request
from editkit.units import Head
from editkit.workspace import Session
from editkit.writing.export.checkpoint import write as bake
from tests.known_heads import HEADS, RECIPE

PROMPTS = [example.prompt for example in TASKS["swear"].examples()[:4]]


def sheet(answers: int, *, otherwise: int = 0) -> Sheet:
    """So many examples, all scored 0 but ``otherwise`` of them."""
    task = TASKS["arithmetic"]
    cells = tuple(Cell(float(place < otherwise), output=f"answer {place}") for place in range(answers))
    return Sheet(task, tuple(task.examples()[:answers]), cells)


@pytest.mark.parametrize(
    ("answers", "noise", "rounding", "different", "allowed"),
    [
        (50, 0, 0.0, 0, True),
        (50, 0, 0.0, 1, False),  # nothing tips an answer here
        (50, 1, 0.0, TIPPED, True),
        (50, 1, 0.0, TIPPED + 1, False),
        (39, 0, 0.05, 2, True),  # the real model in bfloat16
        (39, 0, 0.05, 12, False),  # no rounding explains that
        (100, 0, 0.01, 1, True),
    ],
)
def test_answers_may_differ_as_often_as_rounding_tips_them(
    answers: int, noise: int, rounding: float, different: int, allowed: bool
) -> None:
    hooked, shipped, second = (sheet(answers, otherwise=number) for number in (0, different, noise))
    stored = Answers((hooked,), (hooked,), (second,))
    if allowed:
        same_answers(stored, [shipped], tipped=rounding)
        return
    with pytest.raises(IntegrityError, match=rf"'arithmetic', {different} of {answers} answers differ .* {noise};"):
        same_answers(stored, [shipped], tipped=rounding)


def test_an_answer_that_collapsed_is_another_answer() -> None:
    whole = sheet(4)
    broken = replace(whole, cells=(replace(whole.cells[0], valid=False), *whole.cells[1:]))
    with pytest.raises(IntegrityError, match="expected 'answer 0', found 'answer 0'"):
        same_answers(Answers((whole,), (whole,), (whole,)), [broken], tipped=0.0)


@pytest.mark.parametrize(
    ("again", "rounding", "shipped", "same"),
    [
        (-20.0, 0.0, -20.0, True),
        (-20.0, 0.0, -20.000001, False),
        (-20.001, 0.0, -20.01, True),  # a device that does not repeat itself: ten times as much
        (-20.001, 0.0, -20.02, False),
        (-20.0, 1e-3, -20.01, True),  # other kernels
        (-20.0, 1e-3, -20.03, False),
        (-20.0, 1e-3, float("nan"), False),
        (float("nan"), 0.0, -21.0, False),
    ],
)
def test_log_probabilities_are_equal_but_for_what_the_device_itself_changes(
    again: float, rounding: float, shipped: float, same: bool
) -> None:
    one, repeated, other = (Likelihood(logprob, 9, False) for logprob in (-20.0, again, shipped))
    measured = Probe((Loglikelihood("Say it.", "Say"),), (one,), (repeated,), 0.0, rounding)
    if same:
        same_model(measured, [other])
        return
    with pytest.raises(IntegrityError, match="computes something else than the model that was measured: 'Say it.'"):
        same_model(measured, [other])


def test_on_a_cpu_no_generated_answer_may_differ_in_the_same_batches() -> None:
    requests, texts = tuple(Generate(f"{number}?") for number in range(8)), tuple(map(str, range(8)))
    measured = Probe(requests, texts, texts, 0.5, 0.0)
    same_model(measured, texts)
    with pytest.raises(IntegrityError, match=r"'3\?' expected '3', found 'three'"):
        same_model(measured, (*texts[:3], "three", *texts[4:]))


def test_a_hooked_model_answers_plain_batches_as_its_checkpoint_does(tmp_path: Path) -> None:
    """Bit for bit in half precision, where other batches round otherwise; in float32 every removal asks it."""
    model, task = load(dtype="bfloat16", device="cpu", check=False), TASKS["swear"]
    examples = task.examples()[:6]
    hooked = Sheet(task, tuple(examples), (Cell(0.0),) * 6)
    measured = probe(model, HEADS, [hooked])
    bake(Edit(model.source.base, frozenset(HEADS)), model.source, tmp_path / "out")
    shipped = load(tmp_path / "out", dtype="bfloat16", device="cpu", check=False)
    same_model(measured, plainly(shipped, measured.requests))
    with pytest.raises(IntegrityError):
        same_model(measured, plainly(model, measured.requests))


@pytest.mark.usefixtures("known_heads")
def test_nothing_is_published_where_the_files_hold_something_else(
    organism: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights than those that were measured: with one more head out."""
    base = resolve(None)
    bake(Edit(base.base, frozenset([*HEADS, Head(5, 0)])), base, tmp_path / "other")
    other = resolve(tmp_path / "other")

    def reopened(source: Any, *placement: Any, **options: Any) -> LanguageModel:
        return load_source(other, *placement, **options)

    monkeypatch.setattr(remove, "load_source", reopened)
    with pytest.raises(IntegrityError, match="computes something else"):
        editkit.remove_capability(RECIPE, model=organism, out=tmp_path / "out", session=Session(tmp_path / "work"))
    assert not (tmp_path / "out").exists()
    kept = tmp_path / "out.disagrees"
    assert (kept / "model.safetensors").is_file() and (kept / "editkit" / "report.json").is_file()
    assert not (kept / "editkit" / "manifest.json").exists(), "what looks whole is whole"


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads")
def test_a_checkpoint_is_asked_in_batches_like_the_model_s(
    organism: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the probe for padding, which allows for rounding, comes out otherwise on the edited weights.

    In bfloat16 on a real model other batches give other bits: a finished removal was thrown away.
    """
    padded = []

    def reopened(*source: Any, **options: Any) -> LanguageModel:
        return replace(load_source(*source, **options), padded=not organism.padded)

    def asked(model: LanguageModel, requests: Sequence[Request]) -> tuple[Output, ...]:
        padded.append(model.padded)
        return plainly(model, requests)

    monkeypatch.setattr(remove, "load_source", reopened)
    monkeypatch.setattr(remove, "plainly", asked)
    editkit.remove_capability(RECIPE, model=organism, out=tmp_path / "out", session=Session(tmp_path / "work"))
    assert padded == [organism.padded]


@pytest.mark.commit
@pytest.mark.usefixtures("known_heads")
def test_a_model_that_brings_its_own_code_is_reopened_with_the_leave_it_was_given(tmp_path: Path) -> None:
    base = shutil.copytree(bundled.path(), tmp_path / "base")
    (base / "configuration_mine.py").write_text(
        "from transformers import LlamaConfig\nclass MineConfig(LlamaConfig):\n    model_type = 'mine'\n"
    )
    (base / "modeling_mine.py").write_text(
        "from transformers import LlamaForCausalLM\nfrom .configuration_mine import MineConfig\n"
        "class MineForCausalLM(LlamaForCausalLM):\n    config_class = MineConfig\n"
    )
    config = json.loads((base / "config.json").read_text()) | {
        "model_type": "mine",
        "auto_map": {
            "AutoConfig": "configuration_mine.MineConfig",
            "AutoModelForCausalLM": "modeling_mine.MineForCausalLM",
        },
    }
    (base / "config.json").write_text(json.dumps(config))
    with pytest.raises(EditkitError, match="trust-remote-code"):
        load(base)
    model = load(base, trust_remote_code=True)
    outcome = editkit.remove_capability(RECIPE, model=model, out=tmp_path / "out", session=Session(tmp_path / "work"))
    assert outcome.report.verdict.met and (tmp_path / "out" / "modeling_mine.py").is_file()


def test_a_prompt_longer_than_the_model_s_context_is_asked_too(organism: LanguageModel) -> None:
    [output] = plainly(organism, [Loglikelihood("What is 2 plus 3? " * 400, "What is 2")], HEADS)
    assert isinstance(output, Likelihood) and 0 < output.tokens <= 200 and output.logprob < 0
