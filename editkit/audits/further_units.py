"""More units out of the edited model: those that carry the capability now, and those that carry another task.

The first tell who took over: backups, which show only once others are gone (2211.00593, 2307.15771). The second are
what a later edit would remove: does this removal outlive it? As many units as the edit has, by attribution in the
edited model, less what all other tasks need (``localizers.contrast``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from editkit.audits.subject import Arm, Dose, Scores, Subject
from editkit.checkpoints.knockout import Knockout, union
from editkit.checkpoints.sites import Site
from editkit.evidence.attacks import Attack
from editkit.localizers.contrast import contrast
from editkit.measuring.attribution import effects
from editkit.tasks.task import Loglikelihood
from editkit.units import PLAIN

ANSWERS = 24
"""Right answers of each task that are attributed."""
LATER = 3
"""Other tasks, each of which is removed too."""


def audit(subject: Subject, rng: np.random.Generator) -> Iterator[Attack]:
    """One row per target for its own units, and one for each of up to three other tasks'."""
    edited = subject.edited
    sites = _sites(edited)
    if not sites:
        return
    own = {sample.task.name: [lesson.answer for lesson in sample.lessons] for sample in subject.targets}
    others = {other.task.name: subject.answers_of(other.task, most=ANSWERS) for other in subject.others}
    given = _attributed(edited, own, sites)
    needed = _attributed(edited, others, sites)
    later = rng.permutation(list(needed))[:LATER].tolist()
    chosen = {"the capability": contrast(given, needed)} if given else {}
    for name in later:
        rest = {other: values for other, values in needed.items() if other != name}
        chosen[name] = contrast({name: needed[name]}, rest)
    for name, scores in chosen.items():
        extra = _first(edited, sites, scores, len(edited.out))
        dose = Dose(f"{len(extra)} units out that carry {name} now")
        arms = [replace(arm, out=union((arm.out, extra))) for arm in (edited, subject.control)]
        lost = subject.lost(arms[0].scores(other.task, other.scored) for other in subject.others)
        for sample in subject.targets:
            scored, beside = (arm.scores(sample.task, sample.scored) for arm in arms)
            yield subject.row("further-units", dose, sample, Scores(scored), subject.beside(beside), others=lost)


def _sites(arm: Arm) -> list[Site]:
    """Where units of the edit's kinds are, and have gates."""
    architecture = arm.model.architecture
    kinds = {site.kind for site, _ in architecture.by_site(arm.out)}
    return [site for site in architecture.all_sites if site.kind in kinds and site.expert == PLAIN]


def _attributed(
    arm: Arm, answers: Mapping[str, Sequence[Loglikelihood]], sites: Sequence[Site]
) -> dict[str, np.ndarray]:
    """float[units of all sites] by task, where there are answers."""
    rows = {name: [arm.model.encode(answer) for answer in some[:ANSWERS]] for name, some in answers.items()}
    return {name: effects(arm.model, some, sites, out=arm.out) for name, some in rows.items() if some}


def _first(arm: Arm, sites: Sequence[Site], scores: np.ndarray, count: int) -> Knockout:
    """The first so many units that are not out."""
    places = np.concatenate([arm.model.architecture.all_of([site]).places for site in sites])
    order = places[np.argsort(-scores, kind="stable")]
    return Knockout.of(order[~np.isin(order, arm.out.places)][:count])
