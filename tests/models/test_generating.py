"""Rows that have ended leave a batch, and nobody can tell from the answers.

If one fails: every short answer costs as much as the longest one beside it; or an answer depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from editkit.models.generating import FIRST
from editkit.models.language_model import LanguageModel
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Generate, examples_of

LONG = 24
ASKED = [
    *(example.prompt for example in examples_of(TASKS["arithmetic"], "locate", limit=5)),
    *(example.prompt for example in examples_of(TASKS["swear"], "locate", limit=3)),
]


@pytest.fixture
def widths(organism: LanguageModel) -> Iterator[list[tuple[int, int]]]:
    """(rows, tokens) of every forward pass."""
    seen: list[tuple[int, int]] = []

    def look(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        seen.append((args[0].shape[0], args[0].shape[1]))

    hook = organism.network.get_input_embeddings().register_forward_pre_hook(look)
    yield seen
    hook.remove()


def test_rows_that_have_ended_leave_the_batch(organism: LanguageModel, widths: list[tuple[int, int]]) -> None:
    together = organism.answer([Generate(prompt, LONG) for prompt in ASKED], None)
    rows = [rows for rows, tokens in widths if tokens == 1]
    assert rows[: FIRST - 1] == [len(ASKED)] * (FIRST - 1) and rows[-1] < len(ASKED), "sums end, insults go on"
    assert together == [organism.answer([Generate(prompt, LONG)], None)[0] for prompt in ASKED]


def test_what_is_out_of_a_row_and_its_draw_stay_with_it(organism: LanguageModel) -> None:
    """The same question eight times; every second row is without any head, and goes on for longer."""
    architecture, needed = organism.architecture, organism.architecture.heads
    requests = [Generate(ASKED[-1], LONG, draw=number % 3) for number in range(8)]
    out = [architecture.knockout(needed if number % 2 else []) for number in range(8)]
    alone = [organism.answer([request], [each])[0] for request, each in zip(requests, out, strict=True)]
    assert organism.answer(requests, out) == alone


def test_a_stop_string_ends_a_row(organism: LanguageModel, widths: list[tuple[int, int]]) -> None:
    insults = [Generate(prompt, LONG, stop=(" ",)) for prompt in ASKED]
    texts = organism.answer(insults, None)
    assert all(" " not in str(text) for text in texts)
    steps = [tokens for _, tokens in widths if tokens == 1]
    assert len(steps) < LONG - 1, "nothing is written behind the last stop"
