"""The commands that serve an output are right for its form.

If one fails: a reader of a card starts another model than the one that the card is about, or none.
"""

from __future__ import annotations

import shlex
from itertools import product

import pytest

from editkit.cli import main
from editkit.writing.serving import RANKS, serving

CASES = list(product(("checkpoint", "lora"), (False, True), (False, True)))


def lines(form: str, published: bool, quantized: bool) -> list[list[str]]:
    text = serving(form, "alice/x", base="team/base", published=published, quantized=quantized)
    return [shlex.split(line, comments=True) for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(("form", "published", "quantized"), CASES)
def test_each_step_uses_what_an_earlier_one_made(form: str, published: bool, quantized: bool) -> None:
    commands = lines(form, published, quantized)
    vllm, *rest = commands
    assert vllm[:2] == ["vllm", "serve"] and vllm[2] == ("team/base" if form == "lora" else "alice/x")
    assert ("edited=alice/x" in vllm) == (form == "lora"), "an adapter is served on its base"
    serves = [command[0] for command in rest].index("llama-server")
    assert any("edited.gguf" in command for command in rest[:serves]) and rest[serves][-1] == "edited.gguf"
    assert [command[0] for command in rest[serves + 1 :]] == ["echo", "ollama"]


@pytest.mark.parametrize(("form", "published", "quantized"), CASES)
def test_the_commands_of_editkit_are_its_own(form: str, published: bool, quantized: bool) -> None:
    for command in lines(form, published, quantized):
        if command[0] == "editkit":
            verb = main.get_command(None, command[1])  # pyright: ignore[reportArgumentType]
            assert verb is not None
            words = [word if word != "editkit/edit.json" else "README.md" for word in command[2:]]
            words = [word if word != "alice/x" else "docs" for word in words]
            assert verb.make_context(command[1], words).params["model"] == "team/base"


def test_the_ranks_are_in_order() -> None:
    assert list(RANKS) == sorted(RANKS) and str(RANKS[-1]) in serving("lora", "x")
