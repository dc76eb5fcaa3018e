"""One small subject for all audits: swearing, its planted heads out of the organism, the twin that never learned it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from editkit.api import load
from editkit.audits.subject import Budget, Subject, subject_of
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.pool import Pool
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.units import Unit
from tests.known_heads import HEADS

TWIN = Path(__file__).parents[1] / "organisms" / "never-swear"
FEW = Budget("few", scored=8, others=3, lessons=(10,), steps=(1, 6), rates=(1e-3,))
Made = Callable[..., Subject]


@pytest.fixture(scope="session")
def never_swear() -> LanguageModel:
    return load(str(TWIN))


@pytest.fixture(scope="session")
def made(organism: LanguageModel, never_swear: LanguageModel) -> Iterator[Made]:
    """A subject; what is measured for one test is not measured again for another, unless it asks for a new store."""
    wanted = capability(recipes.changed(recipes.read("swear"), {"retain": ["facts", "recall"], "transfer": ["story"]}))
    with ExitStack() as stack:
        shared = stack.enter_context(opened(None))

        def subject(
            *,
            twin: bool = True,
            fresh: bool = False,
            heads: Sequence[Unit] = HEADS,
            budget: Budget = FEW,
            pool: Pool | None = None,
        ) -> Subject:
            ledger = Ledger(replace(organism, pool=pool), stack.enter_context(opened(None)) if fresh else shared)
            other = replace(ledger, model=never_swear) if twin else None
            return subject_of(ledger, heads, wanted, budget, never_had=other)

        yield subject
