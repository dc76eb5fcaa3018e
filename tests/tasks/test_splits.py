"""The report asks about nothing that the search or the choice has seen: no template, fact, pair of operands or word.

If one fails: a card claims of new templates what was only tried on new fillings of old ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from editkit.tasks.builtin import FORMATS, TASKS, TAUGHT
from editkit.tasks.builtin.asked import Asked
from editkit.tasks.task import (
    FEWEST_CLUSTERS,
    SPLITS,
    Example,
    Score,
    Split,
    Task,
    divides_clusters,
    examples_of,
    split_of,
    splits,
)


def task(clusters: int, *, each: int = 5, name: str = "own", named: bool = True) -> Task:
    numbers = [(cluster, number) for cluster in range(clusters) for number in range(each)]
    examples = tuple(
        Example(f"{cluster}-{number}", f"{cluster} {number}?", f"template {cluster}" if named else "")
        for cluster, number in numbers
    )
    return Asked(name, lambda: examples, lambda *_: Score(1.0))


def clusters_of(found: Task) -> dict[str, set[Split]]:
    where = splits(found.name, found.examples())
    clusters: dict[str, set[Split]] = {}
    for example in found.examples():
        clusters.setdefault(example.cluster, set()).add(where[example.id])
    return clusters


@pytest.mark.parametrize(
    "found", [task(60), task(200), task(300, each=1), *TASKS.values()], ids=lambda found: found.name
)
def test_no_cluster_is_in_two_splits_unless_there_are_too_few_to_keep_them_whole(found: Task) -> None:
    clusters = clusters_of(found)
    divided = any(len(places) > 1 for places in clusters.values())
    assert divides_clusters(found) == divided == (len(clusters) < 100)
    if not divided:
        held = Counter(place for places in clusters.values() for place in places)
        assert min(held[split] for split in SPLITS) >= FEWEST_CLUSTERS


@pytest.mark.parametrize(
    "found",
    [*TAUGHT.values(), *(each for formats in FORMATS.values() for each in formats)],
    ids=lambda found: found.name,
)
def test_built_in_tasks_have_enough_examples_and_clusters_in_each_split(found: Task) -> None:
    """18 clusters of ``report`` that all lost the capability show that at most 15 % of it is left."""
    least: dict[Split, tuple[int, int]] = {"locate": (300, 60), "choose": (120, 25), "report": (150, 30)}
    assert not divides_clusters(found)
    for split, (examples, clusters) in least.items():
        asked = examples_of(found, split)
        assert len(asked) >= examples and len({example.cluster for example in asked}) >= clusters


def test_what_the_search_has_seen_in_one_format_the_report_asks_about_in_no_other() -> None:
    assert clusters_of(task(200, name="asked so")) == clusters_of(task(200, each=3, name="asked otherwise"))


def test_nothing_moves_when_examples_are_added() -> None:
    before = splits("own", task(200).examples())
    for more in (task(200, each=9), task(240), task(400, each=6)):
        after = splits("own", more.examples())
        assert before == {name: after[name] for name in before}


def test_few_clusters_are_divided_example_by_example_and_each_split_gets_its_share() -> None:
    few = task(17, each=30)
    sizes = Counter(splits("own", few.examples()).values())
    assert divides_clusters(few) and sizes["locate"] > sizes["report"] > sizes["choose"] > 60


def test_examples_without_a_cluster_go_by_themselves() -> None:
    alone = task(200, named=False)
    assert not divides_clusters(alone)
    assert all(place == split_of("own", name) for name, place in splits("own", alone.examples()).items())
    some = [replace(example, cluster="") if example.id.endswith("-0") else example for example in task(200).examples()]
    where = splits("own", some)
    assert all(where[example.id] == split_of("own", example.id) for example in some if not example.cluster)
