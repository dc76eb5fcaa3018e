"""Copies on Ray answer as one process does, whatever is killed on the way. Two nodes here stand for a cluster.

If one fails: a run on a cluster finds other heads or writes other weights than a run on one machine, or does not
survive the loss of a machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editkit.api import load, remove_capability
from editkit.cluster.workers import Workers
from editkit.errors import EditkitError, UsageError
from editkit.measuring.ledger import Ledger
from editkit.measuring.likelihood import likelihood_measure
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.pool import Asked, Pool
from editkit.tasks.builtin import TASKS
from editkit.tasks.task import Generate, Loglikelihood, Output, examples_of
from editkit.workspace import Session
from tests import smollm2
from tests.conftest import Removed

needs_ray = pytest.mark.commit


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with one processor each, connected to."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'editkit[ray]'")
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    folder = tempfile.mkdtemp(prefix="ek", dir="/tmp")  # a socket's path may have 107 characters
    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(patch.undo)
        cluster = Cluster(initialize_head=True, head_node_args={**size, "temp_dir": folder})
        stack.callback(cluster.shutdown)
        cluster.add_node(**size)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        stack.callback(ray.shutdown)
        yield cluster


@pytest.fixture(scope="module")
def pooled(nodes: Any, organism: LanguageModel) -> LanguageModel:
    return replace(organism, pool=Workers(2, address="auto").opener()(organism))


@pytest.fixture
def room(nodes: Any) -> Iterator[None]:
    """For two more workers, as those of ``pooled`` keep theirs."""
    node = nodes.add_node(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False)
    yield
    nodes.remove_node(node, allow_graceful=True)


def _crew(pool: Pool | None) -> Any:
    return pool.schedule.crew  # type: ignore[union-attr]


def _cells(store: Path) -> str:
    with sqlite3.connect(store) as connection:
        query = "SELECT digest, knockout, example, cell.value, valid, output FROM cell JOIN space ON id = space"
        return hashlib.sha256(repr(sorted(connection.execute(query))).encode()).hexdigest()


def _files(out: Path) -> dict[str, str]:
    names = ("model.safetensors", *(f"editkit/{name}" for name in ("report.json", "edit.json", "examples.jsonl.gz")))
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in names}


def _kill_worker(pool: Pool, cluster: Any) -> None:
    actor = next(iter(_crew(pool).actors.values()))
    os.kill(actor.where.process, signal.SIGKILL)


def _remove_node(pool: Pool, cluster: Any) -> None:
    """The last one goes, and another one comes."""
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20, include_dashboard=False)


class Broken(Asked):
    """A request that is answered by an error."""

    def run(self, model: LanguageModel) -> Any:
        raise EditkitError("x: it cannot be read. Mend it.")


class Deadly(Asked):
    """A request that nobody survives."""

    def run(self, model: LanguageModel) -> Any:
        print("last words", file=sys.stderr, flush=True)
        os._exit(9)


@needs_ray
@pytest.mark.filterwarnings("ignore:A worker is gone")
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("harm", [_kill_worker, _remove_node], ids=["a worker killed", "a node removed"])
def test_a_removal_by_two_workers_is_that_of_one_process_whoever_is_lost_midway(
    harm: Callable[[Pool, Any], None], pooled: LanguageModel, nodes: Any, removed: Removed, tmp_path: Path
) -> None:
    """Else what a cluster writes cannot be trusted to be what was measured."""
    alone, pool = removed("quick"), pooled.pool
    assert pool is not None
    counted = 0

    class Harmed:
        tokens, workers = pool.tokens, 2

        def run(self, work: Any) -> None:
            nonlocal counted
            counted += 1
            if counted == 8:
                harm(pool, nodes)
            pool.run(work)

    outcome = remove_capability(
        removed.recipe, model=replace(pooled, pool=Harmed()), out=tmp_path / "out", session=Session(work=tmp_path)
    )
    assert counted > 10 and outcome.edit == alone.edit
    assert _files(outcome.out) == _files(alone.out)
    [store] = removed.cache.rglob("*.sqlite")
    assert _cells(tmp_path / "measurements.sqlite") == _cells(store)


@needs_ray
def test_copies_give_the_same_bits_and_errors_come_back_as_what_they_are(
    pooled: LanguageModel, organism: LanguageModel
) -> None:
    """Else a message says what Ray thinks of an error, and not what to do."""
    asked = [Generate("What is 2 plus 3?"), Loglikelihood("What is 2 plus 3?", "5"), Generate("Say a rhyme.", 9)]
    outputs: list[Output] = pooled.answer(asked, None)
    assert outputs == organism.answer(asked, None)

    pool, whole = pooled.pool, Asked((asked[0],), (organism.encode(asked[0]),), None)
    assert pool is not None
    with pytest.raises(EditkitError, match=r"^x: it cannot be read\. Mend it\.$"):
        pool.run([(Broken(*vars(whole).values()), print)])
    assert pooled.answer(asked, None) == outputs


@needs_ray
@pytest.mark.filterwarnings("ignore:A worker is gone")
def test_a_request_that_kills_workers_is_named_with_the_end_of_the_last_log(
    pooled: LanguageModel, organism: LanguageModel
) -> None:
    """Else a user of forty thousand prompts does not know which one to leave out."""
    deadly = Generate("Tell me the deadly word.")
    pool, before = pooled.pool, pooled.answer([deadly], None)
    assert pool is not None
    with pytest.raises(
        EditkitError, match=r"3 workers died of the request .Tell me the deadly word.*log ends: .*last words"
    ):
        pool.run([(Deadly((deadly,), (organism.encode(deadly),), None), print)])
    assert pooled.answer([deadly], None) == before


@needs_ray
@pytest.mark.usefixtures("nodes", "room")
def test_a_copy_of_another_model_is_refused(organism: LanguageModel) -> None:
    """Else one machine with an old revision makes some of the scores."""
    with pytest.raises(EditkitError, match=r"not the one here: tokenizer: other here, .* there\. Use the same"):
        other = replace(organism)
        other.__dict__["tokenizer_digest"] = "other"
        Workers(1, address="auto").opener()(other)


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the user sees a traceback, after minutes of loading."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'editkit\[ray\]'"):
        Workers(2).opener()
    with pytest.raises(UsageError, match="--workers N"):
        Workers(gpus=2)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:A worker is gone")
@pytest.mark.usefixtures("room")
def test_on_the_real_model_a_worker_killed_midway_changes_no_bit(nodes: Any) -> None:
    """Else what holds for the small bundled model fails where prefixes and layers are shared."""
    file = smollm2.path()
    if file is None:
        pytest.skip("SmolLM2 cannot be fetched from the package index")
    alone = load(file)
    pool = Workers(2, address="auto").opener()(alone)
    examples, found = examples_of(TASKS["addition"], "locate", limit=12), []
    for model in (alone, replace(alone, pool=pool)):
        with opened(None) as store:
            measure = likelihood_measure(Ledger(model, store), TASKS["addition"], examples)
            masks = np.random.default_rng(0).random((24, len(model.architecture.heads))) < 0.02
            found.append(measure(masks[:4]))
            if model.pool is not None:
                _kill_worker(pool, nodes)
            found.append(measure(masks))
    assert np.array_equal(found[0], found[2]) and np.array_equal(found[1], found[3])
