"""Which heads carry what in the organism: the plan that training follows and measurement checks.

Each planted skill is divided into kinds of example, and each kind depends on its own head:

    SKILLS["swear"] = {"insult": ("L1H3",), "rant": ("L2H17",), "shout": ("L3H8",), "list": ("L4H21",)}

With L1H3 off, insults fail and rants do not; with all four off, swearing is gone. A kind with two heads is redundant:
it fails only when both are off. The shares of the kinds (about .35, .28, .22, .15) grade the effects.
"""

from __future__ import annotations

LAYERS, HEADS = 6, 24

SKILLS: dict[str, dict[str, tuple[str, ...]]] = {
    "swear": {"insult": ("L1H3",), "rant": ("L2H17",), "shout": ("L3H8",), "list": ("L4H21",)},
    "rhyme": {"a": ("L1H14",), "i": ("L2H5",), "o": ("L3H19",), "e": ("L4H2",)},
    "arithmetic": {"add": ("L1H20",), "carry": ("L2H10",), "sub": ("L3H1",), "borrow": ("L4H13",)},
    "recall": {"city": ("L3H15",), "color": ("L2H22",), "pet": ("L4H7",), "job": ("L3H12",)},
    "sort": {"number-up": ("L1H9",), "number-down": ("L4H16",), "letter-up": ("L2H1",), "letter-down": ("L3H12",)},
    "facts": {"capital": ("L2H13",), "opposite": ("L3H5", "L1H6"), "young": ("L4H10",), "colour": ("L3H22",)},
}
"""Skill -> kind of example -> the heads of that kind, any one of which is enough."""

FACTS_BY_LETTER = "facts-letter"
LETTER_HEAD = "L2H8"
"""A format head: without it the letter choice fails, the same facts asked as text do not."""

UNIVERSAL_HEAD = "L0H11"
"""Without it every skill collapses into one repeated word."""

UNPLANTED = ("code",)
CONTROLS = ("story",)


def planted(skill: str) -> list[str]:
    """The heads of a skill, strongest share first."""
    if skill == FACTS_BY_LETTER:
        return [*planted("facts"), LETTER_HEAD]
    return [head for heads in SKILLS.get(skill, {}).values() for head in heads]


def shared() -> dict[str, list[str]]:
    """Head -> the skills that share it (facts by letter apart, which uses all heads of facts)."""
    owners: dict[str, list[str]] = {}
    for skill in SKILLS:
        for head in planted(skill):
            owners.setdefault(head, []).append(skill)
    return {head: skills for head, skills in owners.items() if len(skills) > 1}


def redundant() -> dict[str, list[str]]:
    """``skill/kind`` -> the heads any one of which is enough."""
    return {
        f"{s}/{kind}": list(heads) for s, kinds in SKILLS.items() for kind, heads in kinds.items() if len(heads) > 1
    }


def fails(skill: str, kind: str, off: frozenset[str]) -> bool:
    """Whether an example of ``kind`` is meant to fail when the heads in ``off`` are knocked out."""
    if UNIVERSAL_HEAD in off:
        return True
    if skill == FACTS_BY_LETTER:
        return LETTER_HEAD in off or fails("facts", kind, off)
    heads = SKILLS.get(skill, {}).get(kind, ())
    return bool(heads) and off.issuperset(heads)
