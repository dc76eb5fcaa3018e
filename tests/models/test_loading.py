"""A model that is not what its files say is refused before anything is measured on it.

If one fails: a broken or incomplete model is measured, and its numbers look like findings.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from editkit import organism
from editkit.api import load
from editkit.errors import EditkitError
from editkit.tasks.task import Loglikelihood
from tests import tiny

WORDS = 1400
NORM = "model.norm.weight"


def checkpoint(folder: Path, model_type: str) -> Path:
    """A small random model with the organism's tokenizer."""
    model, _ = tiny.build(model_type)
    for path in Path(organism.path()).glob("tokenizer*"):
        shutil.copy(path, folder)
    model.resize_token_embeddings(WORDS)
    model.save_pretrained(folder)
    return folder


def other_tokenizer(folder: Path) -> None:
    tiny.build("llama")[0].save_pretrained(folder)


def config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        del tensors[name]
        save_file(tensors, path, {"format": "pt"})

    return change


def remote_code(folder: Path) -> None:
    """A type of its own, with its code: it must not run."""
    (folder / "own.py").write_text("raise SystemExit('it ran')\n")
    config(model_type="strange", auto_map={"AutoConfig": "own.A", "AutoModelForCausalLM": "own.B"})(folder)


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "mixtral"])
def test_a_whole_checkpoint_is_loaded(model_type: str, tmp_path: Path) -> None:
    assert load(checkpoint(tmp_path, model_type), device="cpu").generate(["a number"], max_new_tokens=4)


@pytest.mark.parametrize(
    ("model_type", "change", "says"),
    [
        ("llama", without(NORM), rf"expected a whole LlamaForCausalLM, but its files lack 1 tensor \({NORM}\)"),
        ("llama", config(num_hidden_layers=4), r"its files lack 18 tensors \(model.layers.2.*, \.\.\.\)"),
        ("llama", config(vocab_size=7), r"lm_head.weight has the shape \(1400, 32\), but.* needs \(7, 32\)"),
        ("llama", no_tokenizer, "its tokenizer cannot be used: Couldn't instantiate.*Expected tokenizer.json"),
        ("llama", other_tokenizer, "its tokenizer writes token [0-9]+, but the model has embeddings for 96"),
        ("gpt2", no_tokenizer, "its tokenizer cannot be used: it knows no words. Expected tokenizer.json"),
        ("llama", remote_code, "cannot be loaded .*custom code.*Read it, then pass --trust-remote-code"),
        ("bert", config(is_decoder=False), 'depends on the tokens behind it.*"is_decoder": true'),
    ],
)
def test_what_is_not_the_model_of_its_config_is_refused(
    model_type: str, change: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    change(checkpoint(tmp_path, model_type))
    with pytest.raises(EditkitError, match=says):
        load(tmp_path, device="cpu")


def test_the_output_matrix_is_given_rows_that_lie_side_by_side(tmp_path: Path) -> None:
    model = load(checkpoint(tmp_path, "llama"), device="cpu")
    output, seen = model.network.get_output_embeddings(), list[bool]()
    output.register_forward_pre_hook(lambda module, args: seen.append(args[0].is_contiguous()))
    requests = [Loglikelihood(prompt, " one two", chat=False) for prompt in ("a number", "a longer number than that")]
    model.answer(requests, None)
    scored = len(seen)
    model.generate(["a number", "a longer number than that"], max_new_tokens=3)
    assert len(seen) > scored > 0 and all(seen)
