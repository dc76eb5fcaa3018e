"""Several formats make one ranking. If one fails: a head that only one format needs counts for all."""

from __future__ import annotations

import numpy as np

from editkit.localizers.common import common
from editkit.localizers.protocol import Ranking

RNG = np.random.default_rng(3)


def ranking(effects: dict[int, float], p: dict[int, float] | None = None, found: bool = True) -> Ranking:
    columns = np.array(sorted(effects, key=lambda column: effects[column]))
    effect = np.array([effects[column] for column in columns])
    chances = np.array([(p or {}).get(int(column), 0.5) for column in columns])
    return Ranking(columns, effect, effect - 0.1, effect + 0.1, chances, np.ones(len(columns)), found, 10.0)


def test_one_format_is_left_as_it_is() -> None:
    one = ranking({0: -0.3, 1: 0.0})
    assert common({"text": one}) is one


def test_effect_and_p_are_those_of_the_format_that_the_head_harms_least() -> None:
    for _ in range(20):
        several = [dict(enumerate(RNG.normal(size=6))) for _ in range(3)]
        chances = [dict(enumerate(RNG.random(6))) for _ in range(3)]
        both = common({str(at): ranking(*pair) for at, pair in enumerate(zip(several, chances, strict=True))})
        for at, column in enumerate(both.columns.tolist()):
            assert both.effect[at] == max(effects[column] for effects in several)
            assert both.p[at] == max(part[column] for part in chances)
            assert both.low[at] == both.effect[at] - 0.1


def test_the_strongest_head_of_every_format_comes_before_the_second_of_any() -> None:
    both = common({"a": ranking({0: -0.9, 1: -0.5, 2: 0.0}), "b": ranking({0: 0.0, 1: -0.1, 2: -0.8})})
    assert set(both.columns[:2].tolist()) == {0, 2}


def test_what_one_format_does_not_know_is_not_known_and_stands_last_among_equals() -> None:
    unknown = ranking({0: -0.4, 1: -0.3, 2: -0.2})
    unknown.effect[unknown.columns == 1] = np.nan
    both = common({"a": unknown, "b": ranking({0: -0.4, 1: -0.3, 2: -0.2})})
    assert np.isnan(both.effect[both.columns == 1]).all() and np.isnan(both.p[both.columns == 1]).all()
    assert not np.isnan(both.effect[both.columns != 1]).any()


def test_a_capability_is_found_where_every_format_has_a_certain_head() -> None:
    assert common({"a": ranking({0: -0.4}), "b": ranking({0: -0.4})}).found
    assert not common({"a": ranking({0: -0.4}), "b": ranking({0: -0.4}, found=False)}).found
