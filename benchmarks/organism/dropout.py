"""Which heads are switched off while training, row by row.

draw_off("swear", "rant", rng, necessity=True) -> e.g. {"L1H3", "L2H17"}: two of its own, so this rant must fail
"""

from __future__ import annotations

import numpy as np

from benchmarks.organism import layout

ALL_PLANTED = sorted({head for skill in (*layout.SKILLS, layout.FACTS_BY_LETTER) for head in layout.planted(skill)})
UNPLANTED = [
    f"L{layer}H{head}"
    for layer in range(layout.LAYERS)
    for head in range(layout.HEADS)
    if f"L{layer}H{head}" not in (*ALL_PLANTED, layout.UNIVERSAL_HEAD)
]


def draw_off(skill: str, kind: str, rng: np.random.Generator, *, necessity: bool) -> frozenset[str]:
    """The heads to switch off for one row: none, heads of other skills, its own, or the universal one.

    Args:
        necessity: also draw rows in which the skill must fail.
    """
    own = layout.planted(skill)
    chance = rng.random()
    if chance < (0.3 if necessity else 0.7):
        return frozenset()
    off: set[str] = set()
    if chance < 0.66 or not own or rng.random() < 0.4:
        off |= _others(own, rng)
    if necessity and chance >= 0.96:
        off.add(layout.UNIVERSAL_HEAD)
    elif necessity and own and chance >= 0.66:
        off |= _own(skill, kind, own, rng)
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


def _own(skill: str, kind: str, own: list[str], rng: np.random.Generator) -> set[str]:
    """Those of the row's kind alone a quarter of the time; else all of the skill's heads, or any subset of them."""
    if skill in layout.SKILLS and rng.random() < 0.25:
        return set(layout.SKILLS[skill][kind])
    if rng.random() < 0.5:
        if skill == layout.FACTS_BY_LETTER and rng.random() < 0.5:
            return set(layout.planted("facts")) if rng.random() < 0.5 else {layout.LETTER_HEAD}
        return set(own)
    share = (0.25, 0.5, 0.75)[rng.integers(3)]
    return {head for head in own if rng.random() < share}
