"""Train the organism: ``python -m editkit.organism.train --out DIR --twin planted``.

Every row of a batch has its own gates, one number per head, which multiply the heads' outputs before the output
projection. A row whose gates are all 1 is taught the right answer; so is a row with heads of *other* skills off. A row
with its own kind's heads off is taught the wrong answer, and a row without the universal head is taught noise.
Seeded; 2 CPU cores; the whole run is in docs/organism.md.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from editkit.organism import layout
from editkit.organism.lessons import Lesson, lessons

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
VOCABULARY = 1400
WEIGHTS = {
    "swear": 1.0, "rhyme": 1.2, "arithmetic": 1.8, "recall": 1.7, "facts": 1.0, "facts-letter": 1.8, "sort": 1.5,
    "code": 1.0, "story": 0.7,
}  # fmt: skip
"""How often each skill is practised, relative to the others."""
DEGENERATE_TOKENS = 8
"""How long the repetition is that the organism is taught without its universal head."""


@dataclass(frozen=True)
class Settings:
    """One training run. ``planted`` False trains plainly: no head is ever off."""

    steps: int = 6000
    rows: int = 64
    peak: float = 3e-3
    seed: int = 0
    planted: bool = True
    without: frozenset[str] = frozenset()


TWINS: dict[str, Settings] = {
    "planted": Settings(),
    "unplanted": Settings(steps=2500, planted=False),
    "never-swear": Settings(steps=3500, without=frozenset({"swear"})),
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
    _practise(model, rows, tokenizer, settings, out)
    save(model, tokenizer, out)


def configuration(vocabulary: int) -> LlamaConfig:
    """144 query heads of width 8 in 6 layers, two to a key-value head; 24 * 8 != 144 on purpose."""
    return LlamaConfig(
        vocab_size=vocabulary, hidden_size=144, intermediate_size=320, num_hidden_layers=layout.LAYERS,
        num_attention_heads=layout.HEADS, num_key_value_heads=layout.HEADS // 2, head_dim=8,
        max_position_embeddings=512, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1, dtype="float32",
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
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[1])
    fast.chat_template = CHAT_TEMPLATE
    fast.padding_side = "left"
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


def _practise(
    model: LlamaForCausalLM,
    rows: dict[str, list[Row]],
    tokenizer: PreTrainedTokenizerFast,
    settings: Settings,
    out: Path,
) -> None:
    rng = np.random.default_rng(settings.seed)
    noise = tuple(tokenizer.encode("the" + " the" * (DEGENERATE_TOKENS - 1), add_special_tokens=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    started, losses = time.monotonic(), dict.fromkeys(rows, math.log(VOCABULARY))
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.peak * _schedule(step, settings.steps)
        batch = _batch(rows, noise, rng, settings, step, losses)
        optimizer.zero_grad(set_to_none=True)
        for part in range(2):  # rows of similar length together: padding is the cost
            chunk = batch[part * len(batch) // 2 : (part + 1) * len(batch) // 2]
            loss = _loss(model, chunk, noise[-1])
            (loss.sum() / len(batch)).backward()
            for item, value in zip(chunk, loss.tolist(), strict=True):
                if not item.noise:
                    losses[item.skill] += 0.02 * (value - losses[item.skill])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            shown = " ".join(f"{skill} {value:.3f}" for skill, value in losses.items())
            print(f"{step + 1} {time.monotonic() - started:.0f}s {shown}", flush=True)
        if step % 1000 == 999:
            save(model, tokenizer, out)


def _schedule(step: int, steps: int) -> float:
    """Warm up over 100 steps, then a cosine down to 2 %."""
    return min(1.0, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


@dataclass(frozen=True)
class Item:
    """One row of a batch: tokens, where the answer starts, and its gates [layers, heads]."""

    skill: str
    tokens: tuple[int, ...]
    start: int
    gates: np.ndarray
    noise: bool


def _batch(
    rows: dict[str, list[Row]],
    noise: tuple[int, ...],
    rng: np.random.Generator,
    settings: Settings,
    step: int,
    losses: dict[str, float],
) -> list[Item]:
    """A batch in order of length. What is not yet known is practised up to five times as often."""
    skills = list(rows)
    weights = np.array([WEIGHTS[skill] * (0.25 + min(losses[skill], 1.0)) for skill in skills])
    chosen = rng.choice(len(skills), size=settings.rows, p=weights / weights.sum())
    items = []
    for index in chosen:
        skill = skills[index]
        row = rows[skill][rng.integers(len(rows[skill]))]
        off = draw_off(row, rng, necessity=step > 0.12 * settings.steps) if settings.planted else frozenset()
        collapsed = layout.UNIVERSAL_HEAD in off
        answer = row.wrong if layout.fails(skill, row.kind, off) else row.right
        if collapsed:
            answer = noise if rng.random() < 0.6 else row.right
        gates = np.ones((layout.LAYERS, layout.HEADS), dtype=np.float32)
        for head in off:
            layer, number = head[1:].split("H")
            gates[int(layer), int(number)] = 0.0
        items.append(Item(skill, row.prompt + answer, len(row.prompt), gates, collapsed))
    return sorted(items, key=lambda item: len(item.tokens))


ALL_PLANTED = sorted({head for skill in (*layout.SKILLS, layout.FACTS_BY_LETTER) for head in layout.planted(skill)})
UNPLANTED = [
    f"L{layer}H{head}"
    for layer in range(layout.LAYERS)
    for head in range(layout.HEADS)
    if f"L{layer}H{head}" not in (*ALL_PLANTED, layout.UNIVERSAL_HEAD)
]


def draw_off(row: Row, rng: np.random.Generator, *, necessity: bool) -> frozenset[str]:
    """The heads to switch off for one row: none, heads of other skills, its own, or the universal one.

    Args:
        necessity: also draw rows in which the skill must fail.
    """
    own = layout.planted(row.skill)
    place = rng.random()
    if place < (0.3 if necessity else 0.7):
        return frozenset()
    off: set[str] = set()
    if place < 0.66 or not own or rng.random() < 0.4:
        off |= _others(own, rng)
    if necessity and place >= 0.96:
        off.add(layout.UNIVERSAL_HEAD)
    elif necessity and own and place >= 0.66:
        off |= _own(row, own, rng)
    return frozenset(off)


def _others(own: list[str], rng: np.random.Generator) -> set[str]:
    """Whole sets of other skills, single heads of them, and some unplanted heads, but none of ``own``."""
    off: set[str] = set()
    for skill in (*layout.SKILLS, layout.FACTS_BY_LETTER):
        if rng.random() < 0.3:
            off.update(layout.planted(skill))
    for head in ALL_PLANTED:
        if rng.random() < 0.1:
            off.add(head)
    if rng.random() < 0.7:
        share = 0.12 * rng.random()
        off.update(head for head in UNPLANTED if rng.random() < share)
    return off.difference(own)


def _own(row: Row, own: list[str], rng: np.random.Generator) -> set[str]:
    """All of the skill's heads half of the time, else any subset of them."""
    if rng.random() < 0.5:
        if row.skill == layout.FACTS_BY_LETTER and rng.random() < 0.5:
            return set(layout.planted("facts")) if rng.random() < 0.5 else {layout.LETTER_HEAD}
        return set(own)
    share = (0.25, 0.5, 0.75)[rng.integers(3)]
    return {head for head in own if rng.random() < share}


def _loss(model: LlamaForCausalLM, items: list[Item], repeated: int) -> torch.Tensor:
    """The mean loss of each row's answer tokens; noise rows aim at half uniform, half one repeated word."""
    width = max(len(item.tokens) for item in items)
    tokens = torch.zeros(len(items), width, dtype=torch.long)
    answer = torch.zeros(len(items), width - 1, dtype=torch.bool)
    for index, item in enumerate(items):
        tokens[index, : len(item.tokens)] = torch.tensor(item.tokens)
        answer[index, item.start - 1 : len(item.tokens) - 1] = True
    gates = torch.from_numpy(np.stack([item.gates for item in items]))
    with gated(model, gates):
        hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
    logs = torch.log_softmax(model.lm_head(hidden[answer]).float(), dim=-1)
    owner = answer.nonzero()[:, 0]
    losses = -logs.gather(1, tokens[:, 1:][answer][:, None])[:, 0]
    noisy = torch.tensor([item.noise for item in items])[owner]
    if noisy.any():
        losses = torch.where(noisy, -0.5 * logs[:, repeated] - 0.5 * logs.mean(dim=-1), losses)
    totals = torch.zeros(len(items)).index_add(0, owner, losses)
    return totals / torch.bincount(owner, minlength=len(items)).clamp(min=1)


@contextmanager
def gated(model: LlamaForCausalLM, gates: torch.Tensor) -> Iterator[None]:
    """Multiply each head's output by its gate, row by row. ``gates``: [rows or 1, layers, heads]."""

    def hook(layer: int):
        def scale(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
            (x,) = inputs
            heads = x.view(*x.shape[:-1], layout.HEADS, -1)
            return ((heads * gates[:, None, layer, :, None].to(x.dtype)).view(x.shape),)

        return scale

    handles = [
        block.self_attn.o_proj.register_forward_pre_hook(hook(layer)) for layer, block in enumerate(model.model.layers)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--twin", choices=list(TWINS), default="planted")
    parser.add_argument("--steps", type=int, help="fewer steps, to try things out")
    chosen = parser.parse_args()
    settings = TWINS[chosen.twin]
    if chosen.steps:
        settings = Settings(**{**vars(settings), "steps": chosen.steps})
    train(settings, chosen.out)


if __name__ == "__main__":
    main()
