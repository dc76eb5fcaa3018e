"""Train the organism: ``python -m benchmarks.organism.train --out DIR --twin planted``.

Every row of a batch has its own gates, one number per head, which multiply the heads' outputs before the output
projection. A row whose gates are all 1 is taught the right answer; so is a row with heads of *other* skills off. A row
with its own kind's heads off is taught the wrong answer, and a row without the universal head is taught noise.
Seeded; 2 CPU cores; the whole run is in docs/organism.md.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.organism import layout
from benchmarks.organism.dropout import draw_off
from benchmarks.organism.lessons import Lesson, lessons
from editkit.checkpoints.architecture import Architecture, from_model
from editkit.models.knockout import gated
from editkit.units import parse

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
VOCABULARY = 1400
WEIGHTS = {
    "swear": 1.0, "rhyme": 1.2, "arithmetic": 2.4, "recall": 1.2, "facts": 1.0, "facts-letter": 2.2, "sort": 1.5,
    "code": 1.0, "story": 0.7,
}  # fmt: skip
"""How often each skill is practised, relative to the others."""
POLISH = WEIGHTS | {"arithmetic": 6.0, "story": 3.0}
"""The same for the second stage: what the first leaves unfinished (subtraction without its heads, stories without the
universal head)."""
SUMS = POLISH | {"arithmetic": 18.0}
"""The same for the third stage: differences with a borrow are the rarest kind of the hardest skill, and after the
second stage the other heads of arithmetic still do them without their own."""
DEGENERATE_TOKENS = 8
"""How long the repetition is that the organism is taught without its universal head."""


@dataclass(frozen=True)
class Settings:
    """One training run. ``planted`` False trains plainly: no head is ever off."""

    steps: int = 5000
    polish: int = 1500
    sums: int = 0
    seed: int = 0
    planted: bool = True
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stage:
    """Part of a run: its own optimiser, learning rate (warm-up, then a cosine) and weights of the skills.

    Args:
        settled: the share of the steps before rows that must fail are drawn.
    """

    steps: int
    peak: float
    seed: int
    weights: dict[str, float]
    settled: float
    planted: bool
    rows: int = 64


TWINS: dict[str, Settings] = {
    "planted": Settings(sums=1200),
    "unplanted": Settings(steps=2000, polish=1000, planted=False),
    "never-swear": Settings(steps=2500, polish=1000, without=frozenset({"swear"})),
}


@dataclass(frozen=True)
class Row:
    """A tokenised lesson."""

    skill: str
    kind: str
    prompt: tuple[int, ...]
    right: tuple[int, ...]
    wrong: tuple[int, ...]


def train(settings: Settings, out: Path) -> None:
    """Train one organism and write it to ``out`` as a Hugging Face checkpoint."""
    torch.manual_seed(settings.seed)
    taught = lessons(without=settings.without)
    tokenizer = build_tokenizer([lesson for group in taught.values() for lesson in group])
    rows = {skill: [_row(lesson, tokenizer) for lesson in group] for skill, group in taught.items()}
    model = LlamaForCausalLM(configuration(len(tokenizer)))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters:,} parameters, {sum(map(len, rows.values())):,} lessons", flush=True)
    for stage in (
        Stage(settings.steps, 3e-3, settings.seed, WEIGHTS, settled=0.15, planted=settings.planted),
        Stage(settings.polish, 1e-3, settings.seed + 1, POLISH, settled=0.0, planted=settings.planted),
        Stage(settings.sums, 1e-3, settings.seed + 2, SUMS, settled=0.0, planted=settings.planted),
    ):
        practise(model, rows, tokenizer, stage)
        save(model, tokenizer, out)


def configuration(vocabulary: int) -> LlamaConfig:
    """144 query heads of width 8 in 6 layers, two to a key-value head; 24 * 8 != 144 on purpose.

    The weights start at about 1 / sqrt(hidden size): with the usual 0.02 attention stays flat and in-context skills
    are not learned in this many steps (measured: recall 0.42 after 2,000).
    """
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=144, intermediate_size=320, num_hidden_layers=layout.LAYERS,
        num_attention_heads=layout.HEADS, num_key_value_heads=layout.HEADS // 2, head_dim=8,
        max_position_embeddings=512, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True, initializer_range=0.08, pad_token_id=0, bos_token_id=None,
        eos_token_id=1, dtype="float32",
    )  # fmt: skip


def build_tokenizer(taught: list[Lesson]) -> PreTrainedTokenizerFast:
    """A byte-level BPE over the lessons, each digit a token of its own, with a small chat template."""
    tokenizer = Tokenizer(models.BPE())
    pieces = Regex(r" ?\d| ?[A-Za-z']+|\n| ?[^\sA-Za-z\d]|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pieces, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator((text for one in taught for text in (one.prompt, one.right, one.wrong)), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[1], padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """The checkpoint as transformers loads it."""
    model.generation_config = GenerationConfig(do_sample=False, pad_token_id=0, eos_token_id=1)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _row(lesson: Lesson, tokenizer: PreTrainedTokenizerFast) -> Row:
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    prompt = encode(f"<|user|>{lesson.prompt}<|assistant|>")
    return Row(lesson.skill, lesson.kind, prompt, (*encode(lesson.right), 1), (*encode(lesson.wrong), 1))


def practise(
    model: LlamaForCausalLM, rows: dict[str, list[Row]], tokenizer: PreTrainedTokenizerFast, stage: Stage
) -> None:
    """Train ``model`` in place for one stage."""
    rng = np.random.default_rng(stage.seed)
    noise = tuple(tokenizer.encode("the" + " the" * (DEGENERATE_TOKENS - 1), add_special_tokens=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=stage.peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    architecture = from_model(model)
    started, losses = time.monotonic(), dict.fromkeys(rows, 1.0)
    for step in range(stage.steps):
        for group in optimizer.param_groups:
            group["lr"] = stage.peak * _schedule(step, stage.steps)
        batch = _batch(rows, noise, rng, stage, step, losses)
        optimizer.zero_grad(set_to_none=True)
        for chunk in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):  # of similar length: padding is the cost
            loss = _loss(model, architecture, chunk, noise[-1])
            (loss.sum() / len(batch)).backward()
            for item, value in zip(chunk, loss.tolist(), strict=True):
                if not item.noise:
                    losses[item.skill] += 0.02 * (value - losses[item.skill])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            shown = " ".join(f"{skill} {value:.3f}" for skill, value in losses.items())
            print(f"{step + 1} {time.monotonic() - started:.0f}s {shown}", flush=True)


def _schedule(step: int, steps: int) -> float:
    """Warm up over 100 steps, then a cosine down to 2 %."""
    return min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


@dataclass(frozen=True)
class Item:
    """One row of a batch: tokens, where the answer starts, and the heads that are off."""

    skill: str
    tokens: tuple[int, ...]
    start: int
    off: frozenset[str]
    noise: bool


def _batch(
    rows: dict[str, list[Row]],
    noise: tuple[int, ...],
    rng: np.random.Generator,
    stage: Stage,
    step: int,
    losses: dict[str, float],
) -> list[Item]:
    """A batch in order of length. What is not yet known is practised up to five times as often."""
    skills = list(rows)
    weights = np.array([stage.weights[skill] * (0.25 + min(losses[skill], 1.0)) for skill in skills])
    chosen = rng.choice(len(skills), size=stage.rows, p=weights / weights.sum())
    items = []
    for index in chosen:
        skill = skills[index]
        row = rows[skill][rng.integers(len(rows[skill]))]
        off = (
            draw_off(skill, row.kind, rng, necessity=step > stage.settled * stage.steps)
            if stage.planted
            else frozenset()
        )
        collapsed = layout.UNIVERSAL_HEAD in off
        answer = row.wrong if layout.fails(skill, row.kind, off) else row.right
        if collapsed:
            answer = _collapse(row, noise, rng)
            collapsed = answer is not row.wrong
        items.append(Item(skill, row.prompt + answer, len(row.prompt), off, collapsed))
    return sorted(items, key=lambda item: len(item.tokens))


def _collapse(row: Row, noise: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """What to teach without the universal head: a repeated word, noise in place of the answer, or a wrong story."""
    if row.skill == "story" and rng.random() < 0.6:
        return row.wrong
    return noise if rng.random() < 0.6 else row.right


def _loss(model: LlamaForCausalLM, architecture: Architecture, items: list[Item], repeated: int) -> torch.Tensor:
    """The loss of each row's answer, summed and divided by the root of its length.

    Noise rows aim at half uniform, half one repeated word.
    """
    width = max(len(item.tokens) for item in items)
    tokens = torch.zeros(len(items), width, dtype=torch.long)
    answer = torch.zeros(len(items), width - 1, dtype=torch.bool)
    for index, item in enumerate(items):
        tokens[index, : len(item.tokens)] = torch.tensor(item.tokens)
        answer[index, item.start - 1 : len(item.tokens) - 1] = True
    off = architecture.masks([map(parse, item.off) for item in items])
    with gated(model, architecture, torch.from_numpy(~off).float()):
        hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
    logs = torch.log_softmax(model.lm_head(hidden[answer]).float(), dim=-1)
    owner = answer.nonzero()[:, 0]
    losses = -logs.gather(1, tokens[:, 1:][answer][:, None])[:, 0]
    noisy = torch.tensor([item.noise for item in items])[owner]
    if noisy.any():
        losses = torch.where(noisy, -0.5 * logs[:, repeated] - 0.5 * logs.mean(dim=-1), losses)
    totals = torch.zeros(len(items)).index_add(0, owner, losses)
    return totals / torch.bincount(owner, minlength=len(items)).clamp(min=1).sqrt()


def finish(out: Path, twin: str, *, manifest: Path, limit: int | None) -> None:
    """Measure what was trained and write the manifest and the card; store a twin's weights as bfloat16."""
    from benchmarks.organism.card import card
    from benchmarks.organism.measure import measure

    if twin != "planted":
        model = LlamaForCausalLM.from_pretrained(out, dtype=torch.bfloat16)
        model.save_pretrained(out)
    measured = measure(out, twin=twin, limit=limit, seed=TWINS[twin].seed)
    manifest.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    (out / "README.md").write_text(card(measured, twin=twin), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--twin", choices=list(TWINS), default="planted")
    parser.add_argument("--steps", type=int, help="fewer steps, to try things out")
    parser.add_argument("--measure", action="store_true", help="only measure what is already in --out")
    parser.add_argument("--manifest", type=Path, help="where the manifest goes; manifest.json in --out if not given")
    parser.add_argument("--limit", type=int, help="measure on fewer examples per task")
    chosen = parser.parse_args()
    settings = TWINS[chosen.twin]
    if not chosen.measure:
        few = replace(settings, steps=chosen.steps, polish=0, sums=0) if chosen.steps else settings
        train(few, chosen.out)
    manifest = chosen.manifest or chosen.out / "manifest.json"
    finish(chosen.out, chosen.twin, manifest=manifest, limit=chosen.limit)


if __name__ == "__main__":
    main()
