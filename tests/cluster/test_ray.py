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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from editkit.api import load, remove_capability
from editkit.audits import AUDITS
from editkit.audits.run import audited
from editkit.audits.subject import subject_of
from editkit.cluster.workers import Workers
from editkit.edit import Base, Edit
from editkit.errors import EditkitError, UsageError
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.models.pool import Asked, Pool
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.tasks.task import Generate, Loglikelihood, Output
from editkit.workspace import Session
from tests import smollm2
from tests.audits.conftest import FEW
from tests.conftest import Removed
from tests.known_heads import HEADS

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


def cells(store: Path) -> str:
    with sqlite3.connect(store) as connection:
        query = "SELECT digest, knockout, example, cell.value, valid, output FROM cell JOIN space ON id = space"
        return hashlib.sha256(repr(sorted(connection.execute(query))).encode()).hexdigest()


def files(out: Path) -> dict[str, str]:
    """The hashes of the weights and of the evidence."""
    evidence = [out / "editkit" / name for name in ("report.json", "edit.json", "examples.jsonl.gz")]
    weights = [path for path in out.iterdir() if path.suffix in (".safetensors", ".gguf")]
    assert weights
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (*weights, *evidence)}


def _kill_worker(pool: Pool, cluster: Any = None) -> None:
    actor = next(iter(_crew(pool).actors.values()))
    os.kill(actor.where.process, signal.SIGKILL)


def _remove_node(pool: Pool, cluster: Any) -> None:
    """The last one goes, and another one comes."""
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20, include_dashboard=False)


@dataclass
class Harmed:
    """A pool to which something is done midway: before the so-manieth work."""

    pool: Pool
    harm: Callable[[Pool], None]
    at: int
    works: int = 0

    @property
    def tokens(self) -> int:
        return self.pool.tokens

    @property
    def workers(self) -> int:
        return self.pool.workers

    def run(self, work: Any) -> None:
        self.works += 1
        if self.works == self.at:
            self.harm(self.pool)
        self.pool.run(work)


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
    harmed = Harmed(pool, lambda pool: harm(pool, nodes), at=8)
    outcome = remove_capability(
        removed.recipe, model=replace(pooled, pool=harmed), out=tmp_path / "out", session=Session(work=tmp_path)
    )
    assert harmed.works > 10 and outcome.edit == alone.edit
    assert files(outcome.out) == files(alone.out)
    [store] = removed.cache.rglob("*.sqlite")
    assert cells(tmp_path / "measurements.sqlite") == cells(store)


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
def test_relearning_by_two_workers_is_that_of_one_process(pooled: LanguageModel, organism: LanguageModel) -> None:
    """Else how soon a capability is back depends on who trained."""
    wanted, found = capability(recipes.changed(recipes.read("swear"), {"retain": ["facts", "recall"]})), []
    for model in (organism, pooled):
        with opened(None) as store:
            subject = subject_of(Ledger(model, store), HEADS, wanted, replace(FEW, rates=(1e-4, 1e-3)))
            audits = {name: AUDITS[name] for name in ("relearning", "fine-tuning")}
            found.append(audited(subject, audits, Edit(Base("organism", "sha256:0"), frozenset(HEADS))))
    assert found[0] == found[1] and found[0].rows


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


REAL = """
capability: addition
target: addition
retain: [capitals, copying]
examples: {locate: 20, choose: 20, report: 20}
universal_examples: 6
random_sets: 19
random_examples: 6
max_heads: 2
damage: {each: 0.5, mean: 0.5}
goal: 0.9
audits: none
"""
"""Few examples and easy criteria: the same steps in minutes."""


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:A worker is gone")
@pytest.mark.usefixtures("nodes", "room", "undrawn")
def test_a_removal_from_the_real_model_is_the_same_though_a_worker_is_killed(tmp_path: Path) -> None:
    """Else what holds for the small bundled model fails where prefixes and layers are shared."""
    file = smollm2.path()
    if file is None:
        pytest.skip("SmolLM2 cannot be fetched from the package index")
    recipe = tmp_path / "addition.yaml"
    recipe.write_text(REAL)
    alone = load(file, dtype="float32")
    harmed = Harmed(Workers(2, address="auto").opener()(alone), _kill_worker, at=8)
    for name, model in (("alone", alone), ("shared", replace(alone, pool=harmed))):
        remove_capability(recipe, model=model, out=tmp_path / name, session=Session(work=tmp_path / f"{name}-work"))
    assert harmed.works > 10
    assert files(tmp_path / "alone") == files(tmp_path / "shared")
    works = [tmp_path / f"{name}-work" / "measurements.sqlite" for name in ("alone", "shared")]
    assert cells(works[0]) == cells(works[1])
