"""A request as token ids. What is longer than the model's context loses its beginning, as in lm-evaluation-harness.

    encode(tokenizer, Loglikelihood("The sky is", " blue", chat=False), window=8192) -> ([464, 6766, 318], [4171])

A few-shot prompt that is too long so loses its first examples, never its question.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from editkit.errors import EditkitError, first_line
from editkit.tasks.task import Generate, Loglikelihood, Request

STEPS = 1_000_000
"""Lines of Python that a chat template may take for one message: real ones take some thousands."""
WRITTEN = 1_000_000
"""Characters that it may write around the message."""

ASKED = "on 26 July 2024, without thinking"
"""How chat templates are rendered, for the key that measurements are kept under."""

_DAY = {"%d": "26", "%m": "07", "%b": "Jul", "%B": "July", "%y": "24", "%Y": "2024", "%a": "Fri", "%A": "Friday"}
_DAY |= {"%H": "12", "%I": "12", "%M": "00", "%S": "00", "%p": "PM", "%-d": "26", "%-m": "7", "%j": "208"}
"""Some templates tell the model the date, and a measurement of tomorrow would be another one. This is the date that
Llama's template takes where there is no clock."""

_CLOCK = "{% macro strftime_now(format) %}{{ format"
_CLOCK += "".join(f"|replace('{sign}', '{value}')" for sign, value in _DAY.items()) + " }}{% endmacro %}{{ '' }}"

Encoded = tuple[list[int], list[int]]
"""(context, continuation) in token ids; the continuation is empty for ``Generate``."""


def encode(tokenizer: Any, request: Request, window: int | None) -> Encoded:
    """Token ids of a request, cut from the left to what the model can read.

    Args:
        window: the longest text the model was made for, in tokens; None = unknown, nothing is cut.

    Raises:
        EditkitError: the answer alone does not fit.
    """
    context, continuation = _whole(tokenizer, request)
    # The last token of an answer is only predicted, never read.
    answer = request.max_new_tokens if isinstance(request, Generate) else len(continuation)
    if window is None or len(context) + answer - 1 <= window:
        return context, continuation
    room = answer if isinstance(request, Generate) else answer - 1  # as lm-evaluation-harness cuts
    if room >= window:
        what = "max_new_tokens is" if isinstance(request, Generate) else "the continuation has"
        raise EditkitError(
            f"This model reads {window} tokens, and {what} {answer}: "
            f"no room is left for the prompt {request.prompt!r:.60}. Ask for a shorter answer, or take another model."
        )
    warnings.warn(
        f"Prompts that do not fit in this model's context of {window} tokens are asked without their beginning, "
        "as lm-evaluation-harness does.",
        stacklevel=2,
    )
    return context[len(context) + room - window :], continuation


def window_of(config: Any, tokenizer: Any) -> int | None:
    """The longest text a model was made for, in tokens, by its config, else its tokenizer; None if neither says."""
    text = getattr(config, "text_config", None) or config
    for name in ("n_positions", "max_position_embeddings", "n_ctx"):
        if (value := getattr(text, name, None)) is not None:
            return _length(name, value)
    value = getattr(tokenizer, "model_max_length", None)
    length = None if value is None else _length("model_max_length", value)
    return None if length is None or length >= 10**15 else length  # of 31 digits where a tokenizer knows no limit


def _length(name: str, value: Any) -> int:
    """A number of tokens, as a config or a tokenizer says it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise EditkitError(f"{name} must be a number of tokens, found {value!r:.60}: mend the model's files.")
    return int(value)


def _whole(tokenizer: Any, request: Request) -> Encoded:
    if isinstance(request, Generate) and request.prefill:
        context, beginning = _whole(tokenizer, Loglikelihood(request.prompt, request.prefill, request.chat))
        return context + beginning, []
    if request.chat and tokenizer.chat_template:
        context = tokenizer(_chat(tokenizer, request.prompt), add_special_tokens=False)["input_ids"]
        if isinstance(request, Generate):
            return context, []
        lead, answer = (
            tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
            for text in (request.lead, request.lead + request.continuation)
        )
    elif isinstance(request, Generate):
        return _read(tokenizer, request.prompt) or [_start(tokenizer)], []
    else:
        context, answer = _split(tokenizer, request.prompt, request.lead + request.continuation)
        lead = _split(tokenizer, request.prompt, request.lead)[1] if request.lead else []
    given = max(0, min(len(lead), len(answer) - 1))  # something is left to ask, even where both are one token
    return context + answer[:given], answer[given:]


def _chat(tokenizer: Any, prompt: str) -> str:
    """The prompt in the model's chat template: the same on every day, and asked for an answer, not for thoughts.

    Raises:
        EditkitError: the template, a program of the model's makers, fails, does not end, or writes nothing or too much.
    """
    message = [{"role": "user", "content": prompt}]
    try:
        with _at_most(STEPS):
            text = tokenizer.apply_chat_template(
                message,
                chat_template=_CLOCK + tokenizer.get_chat_template(),
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
                thinking=False,
            )
    except Exception as error:  # what a program raises, nobody can list
        raise EditkitError(
            f"This model's chat template fails on a single message of the user: {first_line(error):.300}."
        ) from error
    if not text.strip() or len(text) > WRITTEN + len(prompt):
        said = f"writes {len(text)} characters around" if text.strip() else "writes nothing for"
        raise EditkitError(f"This model's chat template {said} a single message of the user: mend it.")
    return text.rstrip() + "\n\n</think>\n\n" if text.rstrip().endswith("<think>") else text


@contextmanager
def _at_most(steps: int) -> Iterator[None]:
    """Lines of Python, after which what runs inside is stopped: the same on every machine and in every thread.

    One step that is itself endless, or fills the memory (``'a' * 10**10``), is not stopped by this.
    """
    before, left = sys.gettrace(), steps

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError(f"it does not end within {steps} steps")
        return count

    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


def _split(tokenizer: Any, prompt: str, continuation: str) -> Encoded:
    """Tokenize prompt and continuation together, as they will be read, and cut at the prompt's end."""
    if continuation[:1] == " " and _lacks_space(tokenizer):
        continuation = continuation[1:]
    stripped = prompt.rstrip()
    continuation = prompt[len(stripped) :] + continuation
    whole = _read(tokenizer, stripped + continuation)
    context = _read(tokenizer, stripped)
    if not context:
        context, whole = [_start(tokenizer)], [_start(tokenizer), *whole]
    return context, whole[len(context) :] or whole[-1:]


def _lacks_space(tokenizer: Any) -> bool:
    """Whether a space is a token that says nothing, as in a vocabulary of letters."""
    unknown = tokenizer.unk_token_id
    return unknown is not None and unknown in tokenizer(" ", add_special_tokens=False)["input_ids"]


def _read(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text that goes on: without the end that some tokenizers put behind every text."""
    ids = tokenizer(text)["input_ids"]
    if ids[-1:] != [tokenizer.eos_token_id]:
        return ids
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids[:-1] if ids[len(ids) - 1 - len(plain) : -1] == plain else ids


def _start(tokenizer: Any) -> int:
    return tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id or 0
