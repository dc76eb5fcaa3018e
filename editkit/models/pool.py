"""Copies of a model elsewhere, as far as a model needs to know them: pieces of work go out, results come back.

    model = replace(model, pool=pool)
    model.answer(requests, masks)           # the same batches as without a pool, each answered by some copy

The cut into pieces never depends on how many copies there are, so neither does any result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from editkit.checkpoints.knockout import Knockout
from editkit.models.encoding import Encoded
from editkit.printable import printable
from editkit.tasks.task import Generate, Output, Request

if TYPE_CHECKING:
    from editkit.models.language_model import LanguageModel


class Piece(Protocol):
    """A batch that any copy of the model can do, sent as it is: a value, small beside the model."""

    @property
    def tokens(self) -> int:
        """How much work it is."""
        ...

    def run(self, model: LanguageModel) -> Any:
        """The result, the same from every copy."""
        ...

    def singles(self) -> Sequence[Piece]:
        """The same work row by row."""
        ...

    def told(self) -> str:
        """What it is, in a line, for a message."""
        ...


Arrived = Callable[[Any], None]
"""Called with a piece's result, in the thread of whoever asked."""


class Pool(Protocol):
    """Copies of one model."""

    @property
    def tokens(self) -> int:
        """How many tokens go into a piece: fixed when the pool was opened."""
        ...

    @property
    def workers(self) -> int:
        """How many copies are there now."""
        ...

    def run(self, work: Iterable[tuple[Piece, Arrived]]) -> None:
        """Do every piece once, in any order; ``work`` is drawn from as copies become free.

        Raises:
            EditkitError: a piece could not be done; results that have arrived stay.
        """
        ...


Opener = Callable[["LanguageModel"], Pool]
"""Makes copies of a model that has been loaded here."""


@dataclass(frozen=True)
class Asked:
    """Requests that run together, encoded already, and what is out in each.

    Args:
        prefix: how many tokens all of them begin with, to be run once per mask; 0: none.
    """

    requests: tuple[Request, ...]
    encoded: tuple[Encoded, ...]
    out: tuple[Knockout, ...] | None
    prefix: int = 0

    @property
    def tokens(self) -> int:
        """Read and written, padding included."""
        return len(self.requests) * max(
            len(context) + len(continuation) + (request.max_new_tokens if isinstance(request, Generate) else 0)
            for request, (context, continuation) in zip(self.requests, self.encoded, strict=True)
        )

    def run(self, model: LanguageModel) -> list[Output]:
        return model.answer_batch(self)

    def singles(self) -> list[Asked]:
        out = [None] * len(self.requests) if self.out is None else [(each,) for each in self.out]
        return [
            Asked((request,), (encoded,), without)
            for request, encoded, without in zip(self.requests, self.encoded, out, strict=True)
        ]

    def told(self) -> str:
        first, count, out = self.requests[0], len(self.requests), len(self.out[0]) if self.out else 0
        text = f"{printable(first.prompt[:60])!r} ({len(self.encoded[0][0])} tokens, {out} units out, {self.digest})"
        return f"the request {text}" if count == 1 else f"{count} requests, first {text}"

    @property
    def digest(self) -> str:
        """Names the requests, whatever is out of them."""
        return hashlib.sha256(repr(self.requests).encode()).hexdigest()[:12]
