"""A loaded language model that answers requests, each under its own mask of knocked-out heads.

    model = load()                                                  # the bundled organism
    model.answer([Generate("What is 2 plus 3?")], masks=None)       # -> ["5"]

Rows of one batch may carry different masks, in scoring and in generation; the unedited model is a row of zeros.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from editkit.architecture import Architecture
from editkit.encoding import Encoded, encode, window_of
from editkit.errors import EditkitError
from editkit.knockout import knocked_out
from editkit.sharing import widened
from editkit.source import Source
from editkit.task import Generate, Likelihood, Output, Request

TOKENS_PER_BATCH = {"cpu": 16_384, "cuda": 131_072, "mps": 32_768}
"""Where batches start; they shrink when memory runs out, and stay shrunk."""


@dataclass
class Budget:
    """The one thing that changes while a model is used: how many tokens fit in a batch."""

    tokens: int


@dataclass(frozen=True)
class LanguageModel:
    """A network, its tokenizer, and where its heads are. Made by ``loading.load``; never edits its weights."""

    source: Source
    network: Any
    tokenizer: Any
    architecture: Architecture
    budget: Budget = field(compare=False)
    blocks: tuple[torch.nn.Module, ...] | None = field(default=None, compare=False)
    """The decoder blocks, where rows may share the layers below their first knockout (``sharing.shareable``)."""

    @property
    def dtype(self) -> str:
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        return self.network.get_input_embeddings().weight.device

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int = 64, chat: bool = True) -> list[str]:
        """Greedy answers to ``prompts``; heads knocked out by ``editkit.knocked_out`` stay out."""
        return [
            str(output) for output in self.answer([Generate(prompt, max_new_tokens, chat) for prompt in prompts], None)
        ]

    def answer(
        self,
        requests: Sequence[Request],
        masks: np.ndarray | None,
        *,
        arrived: Callable[[list[int], list[Output]], None] = lambda places, outputs: None,
    ) -> list[Output]:
        """Answer every request.

        Args:
            requests: any mix of ``Generate`` and ``Loglikelihood``.
            masks: bool[len(requests), heads], True = knocked out in that request; None = touch nothing.
            arrived: called after every batch with the places answered, so that nothing measured is lost.

        Returns:
            Outputs in the order of ``requests``, text as generated. They do not depend on how they were batched.
        """
        once = {request: self.encode(request) for request in set(requests)}
        encoded = [once[request] for request in requests]
        outputs: list[Output | None] = [None] * len(requests)
        for batch in self._batches(requests, encoded, self._first_layers(masks, len(requests))):
            for places, answers in self._fitting(batch, requests, encoded, masks):
                for place, answer in zip(places, answers, strict=True):
                    outputs[place] = answer
                arrived(places, answers)
        return [output for output in outputs if output is not None]

    def encode(self, request: Request) -> Encoded:
        """(context, continuation) in token ids; a prompt that does not fit the model's context loses its beginning."""
        return encode(self.tokenizer, request, window_of(self.network.config, self.tokenizer))

    def _first_layers(self, masks: np.ndarray | None, rows: int) -> np.ndarray:
        """The layer of each row's first knockout; 0 where nothing can be shared below it."""
        if masks is None or self.blocks is None:
            return np.zeros(rows, dtype=int)
        layers = np.array([head.layer for head in self.architecture.heads])
        return np.where(masks.any(axis=1), layers[masks.argmax(axis=1)], 0)

    def _batches(
        self, requests: Sequence[Request], encoded: Sequence[Encoded], layers: np.ndarray
    ) -> Iterator[list[int]]:
        """Places grouped by kind and by length, longest first: what runs out of memory does so at once."""

        def kind(place: int) -> tuple[int, tuple[str, ...]]:
            request = requests[place]
            if isinstance(request, Generate):
                return request.max_new_tokens, request.stop
            return -int(layers[place]), ()

        def length(place: int) -> int:
            return len(encoded[place][0]) + len(encoded[place][1]) + max(0, kind(place)[0])

        order = sorted(range(len(requests)), key=lambda place: (kind(place), -length(place), encoded[place]))
        batch: list[int] = []
        for place in order:
            full = batch and (len(batch) + 1) * length(batch[0]) > self.budget.tokens
            if batch and (full or kind(place) != kind(batch[0])):
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def _fitting(
        self,
        places: list[int],
        requests: Sequence[Request],
        encoded: Sequence[Encoded],
        masks: np.ndarray | None,
    ) -> Iterator[tuple[list[int], list[Output]]]:
        """Run one batch, halving it as often as memory demands."""
        from accelerate.utils.memory import should_reduce_batch_size

        waiting = [places]
        while waiting:
            part = waiting.pop(0)
            try:
                answers = self._run(part, requests, encoded, masks)
            except (RuntimeError, MemoryError) as error:
                if not (isinstance(error, MemoryError) or should_reduce_batch_size(error)):
                    raise
                if len(part) == 1:
                    raise EditkitError(
                        f"Out of memory on a single request of {len(encoded[part[0]][0])} tokens on {self.device}. "
                        "Use a device with more memory, --dtype bfloat16, or shorter examples."
                    ) from error
                half = len(part) // 2
                waiting[:0] = [part[:half], part[half:]]
                self.budget.tokens = max(1, self.budget.tokens * half // len(part))
                continue
            yield part, answers

    def _run(
        self,
        places: list[int],
        requests: Sequence[Request],
        encoded: Sequence[Encoded],
        masks: np.ndarray | None,
    ) -> list[Output]:
        rows = [encoded[place] for place in places]
        with torch.inference_mode(), self._masked(None if masks is None else masks[places]):
            first = requests[places[0]]
            if isinstance(first, Generate):
                return list(self._generate([context for context, _ in rows], first.max_new_tokens, first.stop))
            part = None if masks is None else masks[places]
            return list(self.likelihoods(rows, shared=int(self._first_layers(part, len(rows)).min())))

    @contextmanager
    def _masked(self, masks: np.ndarray | None) -> Iterator[None]:
        if masks is None or not masks.any():
            yield
        else:
            with knocked_out(self.network, self.architecture, masks):
                yield

    def _generate(self, contexts: Sequence[list[int]], max_new_tokens: int, stop: tuple[str, ...]) -> list[str]:
        width = max(map(len, contexts))
        pad = _pad(self.tokenizer)
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in contexts], device=self.device)
        attention = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in contexts], device=self.device)
        extra: dict[str, Any] = {"stop_strings": list(stop), "tokenizer": self.tokenizer} if stop else {}
        found = self.network.generate(
            input_ids=ids,
            attention_mask=attention,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=pad,
            **extra,
        )
        texts = self.tokenizer.batch_decode(found[:, width:], skip_special_tokens=True)
        return [_cut(text, stop) for text in texts]

    def likelihoods(self, rows: Sequence[Encoded], *, shared: int = 0) -> list[Likelihood]:
        """Teacher-forced log-probabilities of each row's continuation after its context (token ids)."""
        logprobs, chosen, real = self.token_logprobs(rows, shared=shared)
        totals = (logprobs * real).sum(-1).tolist()
        greedy = (chosen | ~real).all(-1).tolist()
        return [
            Likelihood(total, len(continuation), best)
            for total, best, (_, continuation) in zip(totals, greedy, rows, strict=True)
        ]

    def token_logprobs(
        self, rows: Sequence[Encoded], *, shared: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Right-padded rows through one forward pass: causality keeps the padding out, no attention mask is needed.

        Args:
            shared: below this layer no row has a knockout, so equal texts run there once.

        Returns:
            log-probabilities float[rows, t], "was the greedy choice" bool[rows, t], "is a real token" bool[rows, t],
            over the t continuation positions (left-aligned).
        """
        pad, first = _pad(self.tokenizer), min(len(context) for context, _ in rows) - 1
        logits = self._logits(rows, first, pad, shared)
        span = max(1, max(len(continuation) for _, continuation in rows))
        places = torch.tensor([len(context) - 1 - first for context, _ in rows], device=logits.device)[:, None]
        places = (places + torch.arange(span, device=logits.device)).clamp(max=logits.shape[1] - 1)
        real = torch.tensor([[t < len(continuation) for t in range(span)] for _, continuation in rows])
        targets = torch.tensor([(continuation + [pad] * span)[:span] for _, continuation in rows])
        real, targets = real.to(logits.device), targets.to(logits.device)
        wanted = logits.gather(1, places[..., None].expand(-1, -1, logits.shape[-1])).float()
        logprobs = wanted.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        return logprobs, wanted.argmax(-1) == targets, real

    def _logits(self, rows: Sequence[Encoded], first: int, pad: int, shared: int) -> torch.Tensor:
        """float[rows, positions from ``first`` on, vocabulary]."""
        texts = {id(row): row for row in rows}
        sharing = self.blocks is not None and shared > 0 and len(texts) < len(rows)
        run = list(texts.values()) if sharing else list(rows)
        # A continuation's last token is predicted, not read: with it the longest texts would be one token too long.
        read = [context + continuation[:-1] for context, continuation in run]
        width = max(map(len, read))
        ids = torch.full((len(run), width), pad, device=self.device)
        for place, tokens in enumerate(read):
            ids[place, : len(tokens)] = torch.tensor(tokens)
        place_of = {text: place for place, text in enumerate(texts)}
        index = torch.tensor([place_of[id(row)] for row in rows], device=self.device)
        with widened(self.blocks, shared, index, len(run)) if sharing and self.blocks else nullcontext():
            if self._keeps_logits:
                keep = torch.arange(first, width, device=self.device)
                return self.network(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
            return self.network(input_ids=ids, use_cache=False).logits[:, first:]

    @property
    def _keeps_logits(self) -> bool:
        return "logits_to_keep" in inspect.signature(type(self.network).forward).parameters


def _pad(tokenizer: Any) -> int:
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0


def _cut(text: str, stop: tuple[str, ...]) -> str:
    for word in stop:
        text = text.split(word)[0]
    return text
