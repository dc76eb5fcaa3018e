"""What does not fit a model's context loses its beginning and scores as in lm-eval; nothing runs over or shifts.

If one fails: a long prompt is cut at the wrong end, and a score compares with nothing that is published.
"""

from __future__ import annotations

import copy
import datetime
import sys
import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from editkit.api import load
from editkit.errors import EditkitError
from editkit.models.encoding import encode, window_of
from editkit.models.language_model import LanguageModel
from editkit.tasks.task import Generate, Likelihood, Loglikelihood
from tests import untrained

WINDOW = 64
LONG = "Once upon a time there was a king. " * 20
CUT = pytest.mark.filterwarnings("ignore:Prompts that do not fit")


@pytest.fixture(scope="module", params=["gpt2", "qwen2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("untrained") / request.param
    return load(str(untrained.checkpoint(folder, request.param, window=WINDOW)), device="cpu")


def reference(model: LanguageModel) -> tuple[Any, type]:
    pytest.importorskip("lm_eval", reason="needs the extra: pip install 'editkit[eval]'")
    instance, models = map(import_module, ("lm_eval.api.instance", "lm_eval.models.huggingface"))
    return models.HFLM(pretrained=model.network, tokenizer=model.tokenizer, batch_size=1), instance.Instance


@CUT
def test_likelihoods_of_long_prompts_are_those_of_lm_eval(model: LanguageModel) -> None:
    other, instance = reference(model)
    pairs = [
        (LONG, " The king"),
        (LONG + "He", " was " + "very " * 40 + "old."),
        ("A short one.", " Yes"),
        (LONG, " a"),
    ]
    expected = other.loglikelihood([instance("loglikelihood", {}, pair, 0) for pair in pairs], disable_tqdm=True)
    found = model.answer([Loglikelihood(*pair, chat=False) for pair in pairs], None)
    assert len(model.tokenizer(LONG)["input_ids"]) > 2 * WINDOW
    for ours, (logprob, greedy) in zip(found, expected, strict=True):
        assert isinstance(ours, Likelihood)
        # Ours share a batch, theirs are alone: sums of logarithms in another order.
        assert (ours.logprob, ours.greedy) == (pytest.approx(logprob, abs=1e-3), greedy)


@CUT
def test_answers_to_long_prompts_are_those_of_lm_eval(model: LanguageModel) -> None:
    other, instance = reference(model)
    prompts = [LONG, LONG + "Then", "A short one."]
    arguments = [(prompt, {"until": ["."], "max_gen_toks": 12, "do_sample": False}) for prompt in prompts]
    expected = other.generate_until([instance("generate_until", {}, pair, 0) for pair in arguments], disable_tqdm=True)
    assert model.answer([Generate(prompt, 12, False, (".",)) for prompt in prompts], None) == expected


def test_what_is_cut_is_the_beginning_and_it_is_said(model: LanguageModel) -> None:
    whole = model.tokenizer(LONG)["input_ids"]
    with pytest.warns(UserWarning, match=f"context of {WINDOW} tokens are asked without their beginning"):
        context, _ = model.encode(Generate(LONG, 10, chat=False))
    assert context == whole[-(WINDOW - 10) :]
    with pytest.warns(UserWarning, match="without their beginning"):
        context, continuation = model.encode(Loglikelihood(LONG, " The king", chat=False))
    assert len(context) + len(continuation) == WINDOW + 1, "the last token is predicted, not read"


def test_a_prompt_and_an_answer_that_fit_exactly_lose_nothing(model: LanguageModel) -> None:
    prompt = model.tokenizer.decode(model.tokenizer(LONG)["input_ids"][: WINDOW - 9])
    whole = model.tokenizer(prompt)["input_ids"]
    assert len(whole) == WINDOW - 9
    assert model.encode(Generate(prompt, 10, chat=False))[0] == whole, "the last token is predicted, not read"


def test_a_space_that_a_vocabulary_lacks_is_not_put_before_an_answer() -> None:
    vocabulary = {"?": 0, **{letter: at for at, letter in enumerate("0123456789+=", 1)}}
    tokens = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    tokens.pre_tokenizer = Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, unk_token="?", eos_token="=")
    assert tokenizer(" 7", add_special_tokens=False)["input_ids"] == [0, 8]
    assert encode(tokenizer, Loglikelihood("1+6=", " 7", chat=False), None) == ([2, 11, 7, 12], [8])


@pytest.mark.parametrize("window", [None, 10**6])
def test_what_fits_is_left_alone(model: LanguageModel, window: int | None) -> None:
    for request in (Generate(LONG, 10, chat=False), Loglikelihood(LONG, " a", chat=False), Loglikelihood("", " a")):
        assert encode(model.tokenizer, request, window) == encode(model.tokenizer, request, None)


@pytest.mark.parametrize("around", ["$A", "<|pad|> $A", "$A <|end|>", "<|pad|> $A <|end|>"])
@pytest.mark.parametrize("prompt", ["The bus is late .", "", "It ends .<|end|>"])
def test_the_end_that_a_tokenizer_adds_is_neither_read_nor_scored(
    organism: LanguageModel, around: str, prompt: str
) -> None:
    tokenizer = copy.deepcopy(organism.tokenizer)
    plain = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer = tokenizer(" The end .", add_special_tokens=False)["input_ids"]
    ends = [("<|pad|>", tokenizer.pad_token_id), ("<|end|>", tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=around, special_tokens=ends)
    start = [tokenizer.pad_token_id] if around.startswith("<") else [] if prompt else [tokenizer.eos_token_id]
    assert encode(tokenizer, Generate(prompt, 5, chat=False), None) == (start + plain, [])
    asked = Loglikelihood(prompt, " The end .", chat=False)
    assert encode(tokenizer, asked, None) == (start + plain, answer)


def test_an_empty_prompt_is_asked_alone_and_beside_others(model: LanguageModel) -> None:
    requests = [Generate(prompt, 4, chat=False) for prompt in ("", "Once upon a time", "")]
    alone = [model.answer([request], None)[0] for request in requests]
    assert model.answer(requests, None) == alone


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Generate("Hi", 64, chat=False), "reads 64 tokens, and max_new_tokens is 64: no room"),
        (Loglikelihood("Hi", " very" * 70, chat=False), r"reads 64 tokens, and the continuation has \d+: no room"),
    ],
)
def test_an_answer_that_cannot_fit_is_refused(model: LanguageModel, request_: Any, says: str) -> None:
    with pytest.raises(EditkitError, match=says):
        model.answer([request_], None)


@pytest.mark.parametrize(
    ("config", "length", "window"),
    [
        ({"max_position_embeddings": 512}, 10**30, 512),
        ({"n_positions": 1024, "max_position_embeddings": 512}, 10**30, 1024),
        ({"n_ctx": 99}, 10**30, 99),
        ({"max_position_embeddings": 7, "text_config": SimpleNamespace(max_position_embeddings=512)}, 10**30, 512),
        ({}, 2048, 2048),
        ({}, 10**30, None),
        ({}, None, None),
    ],
)
def test_the_window_is_what_config_or_tokenizer_say(config: dict, length: int | None, window: int | None) -> None:
    assert window_of(SimpleNamespace(**config), SimpleNamespace(model_max_length=length)) == window


DATED = "{% if not date is defined %}{% set date = strftime_now('%d %b %Y, %H:%M') %}{% endif %}"
DATED += "{% macro head() %}[{{ strftime_now('%Y-%m-%d') }}]{% endmacro %}{{ head() }} {{ date }}: "
DATED += "{% for part in messages %}{% if strftime_now is defined %}{{ strftime_now('%B') }} {% endif %}{% endfor %}"
TURN = "{{ messages[0].content }}\n{% if add_generation_prompt %}A:{% endif %}"


@pytest.mark.parametrize(
    ("template", "asked"),
    [
        (TURN, "Hi\nA:"),
        ("\n " + TURN, "\n Hi\nA:"),
        (DATED + TURN, "[2024-07-26] 26 Jul 2024, 12:00: July Hi\nA:"),
        (TURN + "{% if enable_thinking is defined and not enable_thinking %}<none>{% endif %}", "Hi\nA:<none>"),
        (TURN + "{% if not thinking %} short{% endif %}", "Hi\nA: short"),
        (TURN + "<think>\n", "Hi\nA:<think>\n\n</think>\n\n"),
        (TURN + "<think></think>", "Hi\nA:<think></think>"),
        ("{# a comment #}{{ '%d' }} " + TURN, "%d Hi\nA:"),
    ],
)
def test_a_chat_is_the_same_on_every_day_and_asks_for_no_thoughts(
    template: str, asked: str, organism: LanguageModel
) -> None:
    tokenizer = _with_template(organism, template)
    context, _ = encode(tokenizer, Generate("Hi"), None)
    assert context == tokenizer(asked, add_special_tokens=False)["input_ids"]
    plain = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert ("2024" in asked) == (str(datetime.date.today().year) in plain), "the clock is what differs"


@pytest.mark.parametrize("template", ["{{ raise_exception('a system message first') }}", "{% if %}", "{{ 1 + none }}"])
def test_a_chat_template_that_fails_is_told(template: str, organism: LanguageModel) -> None:
    with pytest.raises(EditkitError, match="chat template fails on a single message"):
        encode(_with_template(organism, template), Generate("Hi"), None)


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{5 is divisibleby 0}}", "fails on .*: "),
        ("{{range(10**9)|list}}", "fails on .*: [Rr]ange too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "fails on .*: maximum recursion depth"),
        (ENDLESS, "fails on .*: it does not end within 1000000 steps"),
        ("{{ lipsum(n=10**7) }}", "fails on .*: it does not end within"),
        ("{% set t = 'a' * 10**15 %}{{ t }}", "fails on"),
        ("{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaa' }}{% endfor %}", "writes 1999980 characters around"),
        ("", "writes nothing for"),
        ("{{ '' }} ", "writes nothing for"),
        ("{{ messages[0].tools.x }}", "fails on"),
        ("{{ raise_exception('\\x1b[31mred\\nsecond line') }}", r"fails on .*: \\x1b\[31mred\.$"),
        ("{{ 'x'.__class__.__mro__ }}", "fails on"),
        ("{% include 'x' %}", "fails on"),
    ],
)  # fmt: skip
def test_an_odd_chat_template_ends_in_a_sentence_soon(template: str, says: str, organism: LanguageModel) -> None:
    tokenizer, trace = _with_template(organism, template or "{# nothing #}"), sys.gettrace()
    start = time.process_time()
    with pytest.raises(EditkitError, match=f"chat template {says}") as caught:
        encode(tokenizer, Generate("Hi"), None)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500
    assert time.process_time() - start < 10 and sys.gettrace() is trace


@pytest.mark.parametrize("value", ["x", 0, -1, 1.5e400, [], True, float("nan")])
@pytest.mark.parametrize("name", ["max_position_embeddings", "n_ctx", "model_max_length"])
def test_a_window_that_is_no_length_is_named(name: str, value: Any) -> None:
    config, tokenizer = SimpleNamespace(), SimpleNamespace()
    setattr(tokenizer if name == "model_max_length" else config, name, value)
    with pytest.raises(EditkitError, match=f"{name} must be a number of tokens, found"):
        window_of(config, tokenizer)


def _with_template(model: LanguageModel, template: str) -> Any:
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = template
    return tokenizer
