"""A loaded language model that answers requests, each under its own knocked-out units.

    model = load()                                                  # the bundled organism
    model.answer([Generate("What is 2 plus 3?")], masks=None)       # -> ["5"]

Rows of one batch may carry different knockouts, in scoring and in generation; the unedited model has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from editkit.checkpoints.architecture import Architecture
from editkit.checkpoints.knockout import Knockout
from editkit.checkpoints.source import Source
from editkit.models import padding
from editkit.models.altered import is_altered
from editkit.models.batch_budget import Budget, within_memory
from editkit.models.batches import batches, distinct
from editkit.models.drawing import Drawn
from editkit.models.encoding import Encoded, encode, window_of
from editkit.models.generating import generated
from editkit.models.knockout import knocked_out
from editkit.models.memory import layout, partly_outside
from editkit.models.placement import Placement
from editkit.models.pool import Asked, Piece, Pool
from editkit.models.shared_layers import keeping, widened
from editkit.models.stopping import Stopped
from editkit.tasks.task import Generate, Likelihood, Output, Request

if TYPE_CHECKING:
    from editkit.models.shared_prefix import Prefix

Knockouts = Sequence[Knockout]
"""What is out in each row."""

TOKENS_PER_BATCH = {"cpu": 16_384, "cuda": 131_072, "mps": 32_768}
"""Where batches start; they shrink when memory runs out, and stay shrunk."""


@dataclass(frozen=True)
class Ask:
    """Requests, what is out in each, and who hears of the answers: see ``LanguageModel.answer``."""

    requests: Sequence[Request]
    masks: np.ndarray | Sequence[Knockout] | None
    arrived: Callable[[list[int], list[Output]], None]


@dataclass(frozen=True)
class LanguageModel:
    """A network, its tokenizer, and where its heads are. Made by ``loading.load_source``; never edits its weights."""

    source: Source
    network: Any
    tokenizer: Any
    architecture: Architecture
    budget: Budget = field(compare=False)
    blocks: tuple[torch.nn.Module, ...] | None = field(default=None, compare=False)
    """The decoder blocks, where rows may share the layers below their first knockout (``shared_layers.shareable``)."""
    prefixes: bool = field(default=False, compare=False)
    """Whether what all rows begin with may run once per mask (``shared_prefix.reusable``)."""
    padded: bool = field(default=False, compare=False)
    """Whether rows of other lengths may share a batch (``padding.harmless``)."""
    asked: Placement = field(default=Placement(), compare=False)
    """How it was loaded."""
    proved: bool = field(default=True, compare=False)
    """Whether its sites were proved at load."""
    pool: Pool | None = field(default=None, compare=False)
    """Copies elsewhere, which answer as long as this one is as it was loaded (``altered``)."""

    def __repr__(self) -> str:
        return f"<LanguageModel {self.source.base.model}, {self.architecture!r}, {self.dtype} on {self.device}>"

    @property
    def dtype(self) -> str:
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        return self.network.get_input_embeddings().weight.device

    @cached_property
    def tokenizer_digest(self) -> str:
        """Digest of the tokenizer: how it cuts text, and its chat template."""
        rules = self.tokenizer.backend_tokenizer.to_str() if self.tokenizer.is_fast else repr(self.tokenizer)
        return hashlib.sha256((rules + str(self.tokenizer.chat_template)).encode()).hexdigest()

    @property
    def placement(self) -> Placement:
        """For a model that is loaded while this one is ``parked``: each layer on the same device."""
        devices = layout(self.network)
        same = self.asked.device if not devices or partly_outside(devices) else devices
        return replace(self.asked, device=same, dtype=self.dtype, pool=None)

    @property
    def helped(self) -> Pool | None:
        """The pool, while its copies answer as this model does."""
        return None if is_altered(self.network) else self.pool

    @property
    def rounding(self) -> float:
        """By what share of a log-probability two runs may differ: 0 on a CPU, whose kernels do not change."""
        return 0.0 if self.device.type == "cpu" else 1e-4 if self.dtype == "float32" else 1e-2

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int = 64, chat: bool = True) -> list[str]:
        """Greedy answers to ``prompts``; heads knocked out by ``editkit.knocked_out`` stay out."""
        return [
            str(output) for output in self.answer([Generate(prompt, max_new_tokens, chat) for prompt in prompts], None)
        ]

    def answer(
        self,
        requests: Sequence[Request],
        masks: np.ndarray | Sequence[Knockout] | None,
        *,
        arrived: Callable[[list[int], list[Output]], None] = lambda rows, outputs: None,
    ) -> list[Output]:
        """Answer every request.

        Args:
            requests: any mix of ``Generate`` and ``Loglikelihood``.
            masks: what is knocked out in each request: bool[len(requests), heads], True = out, or a ``Knockout`` each;
                None = touch nothing.
            arrived: called after every batch with the requests answered (their positions), so that nothing is lost.

        Returns:
            Outputs in the order of ``requests``, text as generated. They do not depend on how they were batched.
        """
        outputs: list[Output | None] = [None] * len(requests)

        def kept(rows: list[int], answers: list[Output]) -> None:
            for row, answer in zip(rows, answers, strict=True):
                outputs[row] = answer
            arrived(rows, answers)

        ask, pool = Ask(requests, masks, kept), self.helped
        if pool is not None:
            pool.run(self._pieces(ask, pool))
        else:
            for rows, piece in self._cut(ask, lambda: self.budget.tokens):
                for some, answers in self._split(piece):
                    kept([rows[at] for at in some], answers)
        return [output for output in outputs if output is not None]

    def answer_each(self, asks: Iterable[Ask]) -> None:
        """``answer`` one after the other, without the outputs; copies elsewhere begin with the next while one ends."""
        pool = self.helped
        if pool is not None:
            pool.run(piece for ask in asks for piece in self._pieces(ask, pool))
            return
        for ask in asks:
            self.answer(ask.requests, ask.masks, arrived=ask.arrived)

    def answer_batch(self, piece: Asked) -> list[Output]:
        """What a copy does with a piece: all of it at once, or in parts that fit."""
        return [answer for _, answers in self._split(piece) for answer in answers]

    def _pieces(self, ask: Ask, pool: Pool) -> Iterator[tuple[Piece, Callable[[Any], None]]]:
        for rows, piece in self._cut(ask, lambda: pool.tokens):
            yield piece, partial(ask.arrived, rows)

    def _cut(self, ask: Ask, budget: Callable[[], int]) -> Iterator[tuple[list[int], Asked]]:
        """Batches, and the positions of their requests."""
        once = {request: self.encode(request) for request in set(ask.requests)}
        encoded = [once[request] for request in ask.requests]
        out = None if ask.masks is None else self.architecture.knockouts(ask.masks)
        layers = self._first_layers(out, len(ask.requests))
        how = {"prefixes": self.prefixes, "padded": self.padded}
        for batch in batches(ask.requests, encoded, out, layers, budget=budget, **how):
            yield (
                batch.rows,
                Asked(
                    tuple(ask.requests[row] for row in batch.rows),
                    tuple(encoded[row] for row in batch.rows),
                    None if out is None else tuple(out[row] for row in batch.rows),
                    batch.prefix,
                ),
            )

    def _split(self, piece: Asked) -> Iterator[tuple[list[int], list[Output]]]:
        """Answers with their positions in the piece, in order."""

        def one(row: int) -> str:
            return f"a single request of {len(piece.encoded[row][0])} tokens on {self.device}"

        return within_memory(range(len(piece.requests)), partial(self._run, piece), self.budget, single=one)

    def encode(self, request: Request) -> Encoded:
        """(context, continuation) in token ids; a prompt that does not fit the model's context loses its beginning."""
        return encode(self.tokenizer, request, window_of(self.network.config, self.tokenizer))

    def _first_layers(self, out: Knockouts | None, rows: int) -> np.ndarray:
        """The layer of each row's first knockout; 0 where nothing can be shared below it."""
        if out is None or self.blocks is None:
            return np.zeros(rows, dtype=int)
        first = {each: self.architecture.first_layer(each) or 0 for each in set(out)}
        return np.array([first[each] for each in out], dtype=int)

    def _run(self, piece: Asked, batch: Sequence[int]) -> list[Output]:
        """Answer some requests of a piece, all of which begin with the same ``prefix`` tokens."""
        requests, prefix = piece.requests, piece.prefix
        rows, first = [piece.encoded[row] for row in batch], requests[batch[0]]
        without = None if piece.out is None else [piece.out[row] for row in batch]
        shared = 0 if isinstance(first, Generate) else int(self._first_layers(without, len(rows)).min())
        with torch.inference_mode():
            before = self._prefix(rows[0][0][:prefix], without, len(rows), shared) if prefix else None
            if isinstance(first, Generate):
                contexts = [context for context, _ in rows]
                draws = [getattr(requests[row], "draw", 0) for row in batch]
                return list(self._generate(contexts, first, draws, without, before))
            with self._without(without):
                return list(self.likelihoods(rows, shared=shared, prefix=before))

    def _without(self, out: Knockouts | None) -> AbstractContextManager[Any]:
        return knocked_out(self.network, self.architecture, out) if out and any(out) else nullcontext()

    def _prefix(self, tokens: list[int], out: Knockouts | None, rows: int, shared: int) -> Prefix:
        """Run what all rows begin with, once per distinct mask, and once at all below the first knockout."""
        from editkit.models.shared_prefix import run

        number = distinct(out, range(rows))
        which = torch.tensor([number[row] for row in range(rows)], device=self.device)
        firsts = [int((which == mask).nonzero()[0]) for mask in range(len(set(number.values())))]
        sharing = self.blocks is not None and shared > 0 and len(firsts) > 1
        ids = torch.tensor([tokens] * (1 if sharing else len(firsts)), device=self.device)
        spread = torch.zeros(len(firsts), dtype=torch.long, device=self.device)
        with (
            self._without(None if out is None else [out[row] for row in firsts]),
            widened(self.blocks, shared, spread, 1) if sharing and self.blocks else nullcontext(),
        ):
            return run(self.network, ids, which)

    def _generate(
        self,
        contexts: Sequence[list[int]],
        first: Generate,
        draws: Sequence[int],
        out: Knockouts | None,
        prefix: Prefix | None = None,
    ) -> list[str]:
        """Continuations; padding goes before each row, or behind the beginning that all rows share.

        Args:
            first: the request of the first row, which all rows are like.
            draws: of each row; 0: greedy.
            out: what is knocked out in each row, or None.
        """
        stop = first.stop
        width, pad, skip = max(map(len, contexts)), padding.token(self.tokenizer), prefix.length if prefix else 0
        gaps = [width - len(row) for row in contexts]
        padded = [row[:skip] + [pad] * gap + row[skip:] for row, gap in zip(contexts, gaps, strict=True)]
        ids = torch.tensor(padded, device=self.device)
        attention = torch.ones_like(ids)
        for row, gap in zip(attention, gaps, strict=True):
            row[skip : skip + gap] = 0
        stopped = Stopped(self.tokenizer, stop, width)

        @contextmanager
        def among(rows: Sequence[int], done: int) -> Iterator[dict[str, Any]]:
            """Only these rows: their knockouts, their draws."""
            how: dict[str, Any] = {"stopping_criteria": [stopped]} if stop else {}
            if any(draws):
                how["logits_processor"] = [
                    Drawn.of([draws[row] for row in rows], [contexts[row] for row in rows], done)
                ]
            with self._without(None if out is None else [out[row] for row in rows]):
                yield how

        written = generated(
            self.network,
            ids,
            attention,
            most=first.max_new_tokens,
            pad=pad,
            past=prefix.grown() if prefix else None,
            leave=self.prefixes,
            stopped=stopped,
            rows=among,
        )
        texts = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return [_cut(text, stop) for text in texts]

    def likelihoods(
        self, rows: Sequence[Encoded], *, shared: int = 0, prefix: Prefix | None = None
    ) -> list[Likelihood]:
        """Teacher-forced log-probabilities of each row's continuation after its context (token ids)."""
        logprobs, chosen, real = self.token_logprobs(rows, shared=shared, prefix=prefix)
        totals = (logprobs * real).sum(-1).tolist()
        greedy = (chosen | ~real).all(-1).tolist()
        return [
            Likelihood(total, len(continuation), best)
            for total, best, (_, continuation) in zip(totals, greedy, rows, strict=True)
        ]

    def token_logprobs(
        self, rows: Sequence[Encoded], *, shared: int = 0, prefix: Prefix | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Right-padded rows through one forward pass: causality keeps the padding out, no attention mask is needed.

        Args:
            shared: below this layer no row has a knockout, so equal texts run there once.
            prefix: what all rows begin with, run already.

        Returns:
            log-probabilities float[rows, t], "was the greedy choice" bool[rows, t], "is a real token" bool[rows, t],
            over the t continuation positions (left-aligned).
        """
        pad, first = padding.token(self.tokenizer), min(len(context) for context, _ in rows) - 1
        logits = self._logits(rows, first, pad, shared, prefix)
        span = max(1, max(len(continuation) for _, continuation in rows))
        positions = torch.tensor([len(context) - 1 - first for context, _ in rows], device=logits.device)[:, None]
        positions = (positions + torch.arange(span, device=logits.device)).clamp(max=logits.shape[1] - 1)
        real = torch.tensor([[t < len(continuation) for t in range(span)] for _, continuation in rows])
        targets = torch.tensor([(continuation + [pad] * span)[:span] for _, continuation in rows])
        real, targets = real.to(logits.device), targets.to(logits.device)
        predicting = logits.gather(1, positions[..., None].expand(-1, -1, logits.shape[-1])).float()
        logprobs = predicting.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        return logprobs, predicting.argmax(-1) == targets, real

    def _logits(
        self, rows: Sequence[Encoded], first: int, pad: int, shared: int, prefix: Prefix | None
    ) -> torch.Tensor:
        """float[rows, positions from ``first`` on, vocabulary]."""
        texts = {id(row): row for row in rows}
        sharing = self.blocks is not None and shared > 0 and len(texts) < len(rows)
        skip = prefix.length if prefix else 0
        # A continuation's last token is predicted, not read: with it the longest texts would be one token too long.
        kept = [(context + continuation[:-1])[skip:] for context, continuation in (texts.values() if sharing else rows)]
        width = max(map(len, kept))
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in kept], device=self.device)
        number_of = {text: number for number, text in enumerate(texts)}
        index = torch.tensor([number_of[id(row)] for row in rows], device=self.device)
        cached: dict[str, Any] = {"past_key_values": prefix.served()} if prefix else {"use_cache": False}
        with widened(self.blocks, shared, index, len(kept)) if sharing and self.blocks else nullcontext():
            last = width - (first - skip)
            return self.network(input_ids=ids, **keeping(self.network, last), **cached).logits[:, -last:]


def _cut(text: str, stop: tuple[str, ...]) -> str:
    for word in stop:
        text = text.split(word)[0]
    return text
