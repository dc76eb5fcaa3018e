"""Each way to measure masks that the throughput benchmark compares: the same masks on the same rows, timed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import peers
from editkit.measuring.likelihood import LikelihoodMeasure
from editkit.measuring.store import opened
from editkit.models.language_model import LanguageModel
from editkit.tasks.task import Loglikelihood

Timed = Callable[[], tuple[float, np.ndarray | None]]
"""One run: seconds (``peers.clock``), and the scores of each mask on each row where this way scores."""


@dataclass(frozen=True)
class Bench:
    """One model and what every mask is measured on. ``new_tokens``: how much the reference's manner generates."""

    name: str
    measure: LikelihoodMeasure
    new_tokens: int

    @property
    def model(self) -> LanguageModel:
        return self.measure.ledger.model

    @property
    def requests(self) -> list[Loglikelihood]:
        return [anchor.requests[anchor.pick] for anchor in self.measure.anchors]

    def job(self, masks: np.ndarray) -> peers.Job:
        heads, site = self.model.architecture.heads, self.model.architecture.sites[0]
        return peers.Job(
            folder=str(self.model.source.directory),
            rows=[self.model.encode(request) for request in self.requests],
            masks=[[(heads[column].layer, heads[column].index) for column in np.flatnonzero(mask)] for mask in masks],
            width=site.width,
            dtype=self.model.dtype,
            device=str(self.model.device),
        )

    def timed(self, run: Callable[[], np.ndarray | None]) -> Timed:
        device = str(self.model.device)

        def measured() -> tuple[float, np.ndarray | None]:
            start = peers.clock(device)
            scores = run()
            return peers.clock(device) - start, scores

        return measured

    def random_masks(self, count: int) -> np.ndarray:
        """A twentieth of the heads each, as in compressed sensing."""
        rng, heads = np.random.default_rng(0), len(self.model.architecture.heads)
        masks = np.zeros((count, heads), dtype=bool)
        for row in masks:
            row[rng.choice(heads, size=max(1, heads // 20), replace=False)] = True
        return masks

    def single_heads(self, count: int) -> np.ndarray:
        """Heads of the middle layer, each alone: on average a sweep shares half of the layers."""
        heads = self.model.architecture.heads
        middle = [place for place, head in enumerate(heads) if head.layer == self.model.architecture.layers // 2]
        return np.eye(len(heads), dtype=bool)[middle[:count]]

    def of(self, model: LanguageModel) -> Bench:
        """The same on another model."""
        return replace(self, measure=replace(self.measure, ledger=replace(self.measure.ledger, model=model)))

    def first(self, examples: int) -> Bench:
        """The same on fewer examples."""
        return replace(self, measure=replace(self.measure, anchors=self.measure.anchors[:examples]))


def editkit(bench: Bench, masks: np.ndarray) -> Timed:
    """The arrow that localizers see, store on disk included."""

    def run() -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "store.sqlite") as store:
            return replace(bench.measure, ledger=replace(bench.measure.ledger, store=store))(masks)

    return bench.timed(run)


def rows_only(bench: Bench, masks: np.ndarray, *, masked: bool) -> Timed:
    """The same rows in the same batches, with their masks or through the plain model."""
    requests = [request for _ in masks for request in bench.requests]
    model = replace(bench.model, blocks=None)
    each = np.repeat(masks, len(bench.requests), axis=0) if masked else None

    def run() -> None:
        model.answer(requests, each)

    return bench.timed(run)


def hooked(bench: Bench, masks: np.ndarray) -> Timed:
    """Plain transformers with hooks, one mask per batch."""
    job = bench.job(masks)
    score = peers.hooks(job, bench.model.network)

    def run() -> np.ndarray:
        with torch.inference_mode():
            return np.array([score(mask) for mask in job.masks])

    return bench.timed(run)


def reference(bench: Bench, masks: np.ndarray, *, generated: bool) -> Timed:
    """The model reloaded for every mask, one example at a time; answers generated, or teacher forced."""
    job = bench.job(masks)
    alone = [replace(job, rows=[row]) for row in job.rows]

    def answer(network: Any, one: peers.Job) -> list[float]:
        if not generated:
            return one.scores(network(input_ids=one.ids, use_cache=False).logits)
        ids = torch.tensor([one.rows[0][0]], device=job.device)
        network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=bench.new_tokens, do_sample=False)
        return []

    def run() -> np.ndarray | None:
        found = []
        for mask in job.masks:
            network = peers.load(job)
            network.generation_config.max_length = None
            with torch.inference_mode(), peers.switched_off(network, mask, job.width):
                found.append([score for one in alone for score in answer(network, one)])
        return None if generated else np.array(found)

    return bench.timed(run)


@contextmanager
def library(python: str | None, name: str, job: peers.Job) -> Iterator[Timed | str]:
    """A library in a process of its own, model loaded and warm; or why it is not there."""
    if python is None:
        yield "not run: no --peers"
        return
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors.txt").open("w+") as errors:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(asdict(job)), "utf-8")
        process = subprocess.Popen(
            [python, str(Path(peers.__file__)), name, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        )
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def run() -> tuple[float, np.ndarray]:
            stdin.write("go\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            return answer["seconds"], np.array(answer["scores"])

        if stdout.readline():
            yield run
        else:
            errors.seek(0)
            yield f"failed: {(errors.read().strip().splitlines() or ['no message'])[-1][:120]}"
        stdin.close()
        process.wait()
