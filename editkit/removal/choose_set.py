"""Which units to remove, as a set: the one that takes the target furthest within the damage budget.

A list by effect on the target is led by heads that everything needs, and damage does not add up. So sets are searched
with likelihoods (``localizers.set_search``), on every format of the target and on every retained task, and the
strongest sets of the frontier are tried with real answers on ``choose``, beside random sets of the same layers: some
layers can spare no heads, whichever they are. Likelihoods underrate what answers lose: where the best set of neurons
still costs a retained task more than half its budget, the neurons that task depends on most are left out of it, and
what remains is tried too.
"""

from __future__ import annotations

from dataclasses import replace

from editkit.evidence.localization import Localization
from editkit.measuring.ledger import Ledger
from editkit.removal.capability import Capability
from editkit.removal.choose import Choice
from editkit.removal.find_neurons import ATTRIBUTED
from editkit.removal.harden import harden
from editkit.removal.search_sets import Group, budget_of, likelihoods_of, search, strongest
from editkit.removal.spare import smaller_sets
from editkit.removal.trial import trial_of
from editkit.removal.try_sets import COSTS, Attempt, Tried, cheapest

SPARED = 2
"""How many retained tasks a set beyond its budget is made smaller for."""


def choose_set(ledger: Ledger, capability: Capability, localization: Localization, *, seed: int = 0) -> Choice:
    """Real answers to the strongest sets of the frontier, one after another, until one is good.

    Where all that reach the goal cost a retained task more than half its budget, the cheapest is made smaller. Then the
    best of all is taken: by its status, then by the points over the budget, then by what is left of the target. Where
    the recipe hardens, it is the start of larger sets; the largest that costs the others no more is taken.

    No dose curve: it shows the strongest heads one after another, and these sets are none of that.
    """
    recipe = capability.recipe
    with ledger.stage("Searching sets") as staged:
        likelihoods = likelihoods_of(staged, capability)
        frontier = search(likelihoods, localization, recipe)
    sets = [point for point in frontier if point.units] or [replace(frontier[0], units=localization.top(1))]
    trial, tried = trial_of(capability, split="choose", seed=seed), list[Tried]()
    with ledger.stage("Choosing a set") as staged:
        attempt = Attempt(staged, trial, capability, localization.universal, seed)
        for point in strongest(sets, capability):
            tried.append(attempt.tried(point, cheapest(tried, recipe)))
            if tried[-1].good:
                tried[-1] = attempt.compared(tried[-1])
            if tried[-1].good:
                break
        for _ in range(SPARED):
            nearest = cheapest(tried, recipe)
            if nearest is None or nearest.cheap:
                break
            examples = max(ATTRIBUTED, recipe.universal_examples)
            smaller = smaller_sets(staged, nearest.worst, nearest.point.units, examples=examples)
            for point in likelihoods.points(smaller):
                tried.append(attempt.tried(point, cheapest(tried, recipe)))
        while not (best := min(tried, key=lambda each: each.rank)).compared:
            tried[tried.index(best)] = attempt.compared(best)
    hardening = None
    if recipe.harden and best.status == "met":
        within, start = likelihoods.within(budget_of(recipe)), best.point

        def affordable(units: Group) -> bool:
            return within(units, start) is not None

        hardened = harden(ledger, capability, start.units, affordable, seed=seed)
        hardening = hardened.hardening
        with ledger.stage("Choosing a hardened set") as staged:
            attempt = Attempt(staged, trial, capability, localization.universal, seed)
            for units in reversed(hardened.sets):
                [point] = likelihoods.points([units])
                tried.append(attempt.compared(attempt.tried(point, best)))
                if tried[-1].rank[:COSTS] <= best.rank[:COSTS]:
                    best = tried[-1]
                    break
    answered = {frozenset(each.point.units): each.point for each in tried}
    rest = [point for point in frontier if frozenset(point.units) not in answered]
    shown = sorted(
        [*rest, *answered.values()], key=lambda point: (point.worst, point.mean) if point.units else (-1.0, 0.0)
    )
    return Choice(frozenset(best.point.units), frontier=tuple(shown), hardening=hardening)
