"""How much each unit of a layer contributes to given answers: activation times gradient, on a path from shut to open.

    rows = [model.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors]
    for site in model.architecture.neuron_sites:                      # layer by layer: the paper's, 19 steps each
        scores = attributions(model, rows, [site], steps=19)[0]       # float32[rows, neurons of the layer]
    scores = attributions(model, rows, model.architecture.neuron_sites)   # all layers in one pass, first order

The gates of all given sites are scaled together, and the gradient is summed over positions: what a knockout changes.
With steps a unit's score is its integrated gradient (Sundararajan, Taly, Yan 2017; right Riemann sum, as in Knowledge
Neurons, Dai et al. 2022), and the scores of a site add up to the change that its whole knockout makes. A guess only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch

from editkit.checkpoints.architecture import Site
from editkit.checkpoints.knockout import NOTHING, Knockout
from editkit.errors import EditkitError, OutOfMemory, first_line
from editkit.localizers.adaptive import Prior
from editkit.measuring.likelihood import LikelihoodMeasure
from editkit.models.batch_budget import Budget, within_memory
from editkit.models.encoding import Encoded
from editkit.models.knockout import knocked_out, scaled
from editkit.models.language_model import LanguageModel
from editkit.models.pool import Piece, Pool
from editkit.models.recomputing import recomputed
from editkit.models.shared_layers import blocks_of
from editkit.units import PLAIN

Path = Literal["layers", "joint"]
BACKWARD = 3.0
"""An attribution costs as much as this many forward passes: one, one more block by block, and the way back, which has
no gradients of weights to make."""


@dataclass(frozen=True)
class Backward:
    """Rows whose attributions are made together: see ``attributions``."""

    rows: tuple[Encoded, ...]
    sites: tuple[Site, ...]
    steps: int
    within: float
    probability: bool
    out: Knockout

    @property
    def tokens(self) -> int:
        """As so many forward passes."""
        return int((1 + BACKWARD) * self.steps * len(self.rows) * _width(self.rows))

    def run(self, model: LanguageModel) -> list[np.ndarray]:
        return _joined(each for _, each in self.split(model, Budget(model.budget.tokens)))

    def part(self, start: int, budget: Budget | Pool) -> Backward:
        """As many rows from ``start`` on as the budget allows."""
        size = max(1, budget.tokens // _width(self.rows))
        return replace(self, rows=self.rows[start : start + size])

    def nothing(self) -> list[np.ndarray]:
        """The scores of no row."""
        return [np.zeros((0, site.units), dtype=np.float32) for site in self.sites]

    def split(self, model: LanguageModel, budget: Budget) -> Iterator[tuple[list[int], list[np.ndarray]]]:
        """float32[some rows, units] per site, with the numbers of the rows: all at once, or in parts that fit."""

        def one(number: int) -> str:
            return f"the backward pass of a single row of {len(self.rows[number][0])} tokens on {model.device}"

        return within_memory(range(len(self.rows)), partial(self._run, model), budget, single=one)

    def singles(self) -> list[Backward]:
        return [replace(self, rows=(row,)) for row in self.rows]

    def told(self) -> str:
        return f"gradients of {len(self.rows)} answers, the first after {len(self.rows[0][0])} tokens"

    def _run(self, model: LanguageModel, numbers: Sequence[int]) -> list[np.ndarray]:
        batch = [self.rows[number] for number in numbers]
        total = [np.zeros((len(batch), site.units), dtype=np.float32) for site in self.sites]
        without = knocked_out(model.network, model.architecture, self.out) if self.out else nullcontext()
        with without:
            for step in range(self.steps):
                scale = (step + self.within) / self.steps
                gradients = _gradients(model, batch, self.sites, scale, self.probability)
                for each, gradient in zip(total, gradients, strict=True):
                    each += gradient / self.steps
        return total


def _joined(parts: Iterable[list[np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(of_site) for of_site in zip(*parts, strict=True)]


def _width(rows: Sequence[Encoded]) -> int:
    return max((len(context) + len(answer) for context, answer in rows), default=1)


def attributions(
    model: LanguageModel,
    rows: Sequence[Encoded],
    sites: Sequence[Site],
    *,
    steps: int = 1,
    within: float = 1.0,
    probability: bool = False,
    out: Knockout = NOTHING,
) -> list[np.ndarray]:
    """One float32[rows, units] per site; positive: the unit makes the answer likelier.

    Args:
        rows: (context, answer) in token ids: ``model.encode``.
        sites: what is scaled together. One: exact for its layer. All: the cheap joint mode, one pass a step for the
            whole model.
        steps: points on the path; 1: the gradient at the unedited model.
        within: where in its step each point lies: 1 at the end (a right Riemann sum), 0.5 in the middle.
        probability: attribute the mean probability of the answer's tokens instead of their mean log-probability.
        out: what is knocked out meanwhile.

    Raises:
        EditkitError: for sites of routed experts, which have no gates.
        OutOfMemory: one row alone does not fit.
    """
    made: list[list[np.ndarray]] = []
    whole = Backward(tuple(rows), tuple(sites), steps, within, probability, out)
    _attribute(model, [whole], lambda number, scores: made.append(scores))
    return made[0]


def _attribute(model: LanguageModel, groups: Sequence[Backward], done: Callable[[int, list[np.ndarray]], None]) -> None:
    """Tell the scores of each group, with its number, as soon as they are whole."""
    for group in groups:
        if routed := [site for site in group.sites if site.expert != PLAIN]:
            raise EditkitError(f"{routed[0].module}: neurons of routed experts have no gates, so no gradients by them.")
    pool = model.helped
    if pool is not None:
        pool.run(piece for number, group in enumerate(groups) for piece in _pieces(group, pool, partial(done, number)))
        return
    for number, group in enumerate(groups):
        budget, start, parts = Budget(model.budget.tokens), 0, []
        while start < len(group.rows):
            piece = group.part(start, budget)
            parts += [scores for _, scores in piece.split(model, budget)]
            start += len(piece.rows)
        done(number, _joined(parts) if parts else group.nothing())


def _pieces(
    group: Backward, pool: Pool, done: Callable[[list[np.ndarray]], None]
) -> Iterator[tuple[Piece, Callable[[list[np.ndarray]], None]]]:
    """The parts of a group, whose results are laid together in the order of its rows."""
    starts = range(0, len(group.rows), len(group.part(0, pool).rows) or 1)
    parts: dict[int, list[np.ndarray]] = {}

    def arrived(start: int, scores: list[np.ndarray]) -> None:
        parts[start] = scores
        if len(parts) == len(starts):
            done(_joined(parts.pop(each) for each in starts))

    if not group.rows:
        done(group.nothing())
    for start in starts:
        yield group.part(start, pool), partial(arrived, start)


def effects(
    model: LanguageModel,
    rows: Sequence[Encoded],
    sites: Sequence[Site],
    *,
    path: Path = "joint",
    steps: int = 1,
    probability: bool = False,
    out: Knockout = NOTHING,
    advance: Callable[[int], None] = lambda rows: None,
) -> np.ndarray:
    """float32[units of all sites]: the mean over rows.

    Args:
        path: scale all sites together, or one at a time, as the paper does, at as many times the cost.
        out: what is knocked out meanwhile.
        advance: told how many rows are done, after each pass through the sites that are scaled together.
    """
    means: dict[int, list[np.ndarray]] = {}

    def done(number: int, scores: list[np.ndarray]) -> None:
        means[number] = [each.mean(0) for each in scores]
        advance(len(rows))

    groups = [(site,) for site in sites] if path == "layers" else [tuple(sites)]
    _attribute(model, [Backward(tuple(rows), group, steps, 1.0, probability, out) for group in groups], done)
    return np.concatenate([mean for number in range(len(groups)) for mean in means[number]])


def gate_prior(measure: LikelihoodMeasure, *, steps: int = 4, limit: int = 32) -> Prior | None:
    """A cheap first guess at every head's effect, ready to be asked for; None where the model has no gradients, or the
    columns of the measure are not its heads.

    All heads' gates are scaled together (Michel, Levy, Neubig 2019). Gradients at the unedited model alone fail on
    saturated skills, as a model that is sure of its answer has none; the path repairs that.

    Args:
        steps: points on the path, each in the middle of its step.
        limit: how many examples are used; the first ones, which are a fair sample.

    Returns:
        A function that gives (effects float[heads], in nats per token, negative = the head is needed, or None, with a
        warning, where a backward pass fails or does not fit; cost in evaluations of the full search set).
    """
    model = measure.ledger.model
    if getattr(model.network, "is_quantized", False) or measure.columns is not None:
        return None

    def prior() -> tuple[np.ndarray | None, float]:
        rows = [model.encode(anchor.requests[anchor.pick]) for anchor in measure.anchors[:limit]]
        cost = BACKWARD * len(rows) / measure.examples
        try:
            scores = attributions(model, rows, model.architecture.sites, steps=steps, within=0.5)
        except (OutOfMemory, RuntimeError) as error:  # torch says the latter of an operation without a gradient
            warnings.warn(f"No gradients, so the search goes on without them: {first_line(error)}", stacklevel=2)
            return None, cost
        return -np.concatenate(scores, axis=1).mean(axis=0, dtype=float), cost * steps

    return prior


def _gradients(
    model: LanguageModel, rows: Sequence[Encoded], sites: Sequence[Site], scale: float, probability: bool
) -> list[np.ndarray]:
    """d(answer) / d(gate) with all gates at ``scale``: float32[rows, units] per site."""
    blocks = blocks_of(model.network, model.architecture) or ()
    gates = [torch.full((len(rows), site.units), scale, device=model.device, requires_grad=True) for site in sites]
    with torch.enable_grad(), recomputed(blocks), ExitStack() as stack:
        for site, gate in zip(sites, gates, strict=True):
            stack.enter_context(scaled(model.network, site, gate))
        logprobs, _, real = model.token_logprobs(rows)
        each = (logprobs.exp() if probability else logprobs) * real
        gradients = torch.autograd.grad((each.sum(-1) / real.sum(-1).clamp(min=1)).sum(), gates)
    return [gradient.float().cpu().numpy() for gradient in gradients]
