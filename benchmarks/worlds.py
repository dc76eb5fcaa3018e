"""Planted worlds with effects like the paper's: what the localizers are tried on where every needed head is known.

A world has 100 examples, five needed heads of margin effects .80 .45 .35 .28 .22 (the first alone takes the accuracy
from 78 % to about 50 %, as on GSM8K in the paper), three universal heads, a heavy-tailed background capped at .08,
200 interactions, and one head that hides two fifths of a needed head's effect. A second kind of world splits the
capability by sub-skill: each head is everything to 100, 50, 30, 20 or 10 % of the examples. Continuous scores weigh
heads by a random factor (lognormal, .3) that 0/1 scores do not have: likelihoods and answers never agree exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tests.planted import Planted

GRADED = (0.80, 0.45, 0.35, 0.28, 0.22)
SHARES = (1.0, 0.5, 0.3, 0.2, 0.1)
CONTROLS = {"recall": "generation", "facts": "choice-text", "letters": "choice-letter", "story": "likelihood"}
SPECIAL = ("backup", "redundant pair", "pure noise")
SMALL = 256
"""Heads of a special world."""


@dataclass(frozen=True)
class World:
    """One seed: the capability by likelihoods and by answers, its needed heads, and what a prior would say."""

    continuous: Planted
    binary: Planted
    controls: dict[str, Planted]
    needed: np.ndarray
    universals: np.ndarray
    backup: int
    guesses: np.ndarray


def world(heads: int, seed: int, kind: str) -> World:
    rng = np.random.default_rng([seed, heads, kind == "graded"])
    background, other = (_background(heads, rng) for _ in range(2))
    drawn = rng.permutation(heads)
    needed, universals, backup, decoys = drawn[:5], drawn[5:8], int(drawn[8]), drawn[20:28]
    graded = kind == "graded"
    effects = background if graded else 0.3 * background
    effects[needed] = GRADED if graded else 3.0
    effects[universals] = rng.uniform(2, 4, 3)
    shares = {} if graded else dict(zip(needed.tolist(), SHARES, strict=True))
    pairs = [(int(a), int(b), float(w)) for (a, b), w in _interactions(heads, rng) if a != b]
    make = partial(
        Planted,
        effects,
        seed=seed,
        share=shares,
        pairs=pairs,
        backups=[(int(needed[2]), backup, 0.4)],
        margin=1.0 if graded else 1.5,
        spread=1.27 if graded else 0.3,
    )
    continuous, binary = make(), make(binary=True)
    continuous.loads = continuous.loads * rng.lognormal(-0.045, 0.3, heads)[:, None]
    control = 0.5 * background + 0.5 * other
    control[needed], control[universals] = 0.03, effects[universals] * rng.uniform(0.7, 1.2, 3)
    controls = {task: Planted(control, seed=1000 * place + seed) for place, task in enumerate(CONTROLS, 1)}
    strength = effects.copy()
    strength[list(shares)] *= list(shares.values())
    guesses = strength * rng.lognormal(0, 0.6, heads) + rng.normal(0, 0.03, heads)
    guesses[needed[rng.random(5) < 0.15]] *= 0.1  # a prior misses some strong heads and names some that do nothing
    guesses[decoys] += rng.uniform(0.2, 0.6, len(decoys))
    return World(continuous, binary, controls, needed, universals, backup, -guesses)


def _background(heads: int, rng: np.random.Generator) -> np.ndarray:
    size = np.minimum(0.02 * np.abs(rng.standard_t(3, heads)), 0.08)
    return size * np.where(rng.random(heads) < 0.75, 1, -1)


def _interactions(heads: int, rng: np.random.Generator) -> Iterable[tuple[np.ndarray, float]]:
    return zip(rng.integers(0, heads, (200, 2)), rng.normal(0, 0.08, 200), strict=True)


def special(kind: str, seed: int) -> tuple[Planted, np.ndarray, np.ndarray]:
    """What single knockouts cannot see, or nothing at all: the world, the heads in question, what a prior would say."""
    rng = np.random.default_rng([seed, SMALL])
    heads = rng.permutation(SMALL)
    if kind == "pure noise":
        noise = Planted(np.zeros(SMALL), seed=seed, margin=0.0, noise=1.0, binary=True)
        return noise, heads[:0], rng.normal(size=SMALL)
    effects = _background(SMALL, rng) / 2
    effects[heads[:3]] = (0.8, 0.45, 0.35)
    guesses = effects * rng.lognormal(0, 0.6, SMALL) + rng.normal(0, 0.03, SMALL)
    if kind == "backup":
        return Planted(effects, seed=seed, backups=[(heads[0], heads[3], 0.6)]), heads[3:4], -guesses
    guesses[heads[3:5]] += 0.4
    return Planted(effects, seed=seed, pairs=[(heads[3], heads[4], 1.0)]), heads[3:5], -guesses
