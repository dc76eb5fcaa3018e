"""Copies of a model as actors of Ray: made, watched, ended. Only this file and ``copy`` know Ray.

    model = replace(model, pool=pool_of(model, Workers(2)))
    model.answer(requests, masks)

An actor that dies is followed by another one, under another name.
"""

from __future__ import annotations

import os
import platform
import queue
import re
import time
import uuid
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import torch
from ray import exceptions  # pyright: ignore[reportMissingImports]
from ray._private import worker as printing  # pyright: ignore[reportMissingImports]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore[reportMissingImports]

from editkit.checkpoints.source import Source
from editkit.cluster.copy import Copy, Loaded, Where
from editkit.cluster.identity import PROCESSOR, differences, facts
from editkit.cluster.schedule import DEADLY, Answered, Died, Event, Failed, Ready, Schedule
from editkit.cluster.workers import Workers
from editkit.errors import EditkitError, first_line
from editkit.models.language_model import LanguageModel
from editkit.models.placement import Placement
from editkit.models.pool import Arrived, Piece
from editkit.printable import printable
from editkit.progress import Stages

PIECE = 16_384
"""Tokens of a batch, whatever the device: larger ones would leave most of many workers without work."""
WAITING = 60.0
"""Seconds after which it is said that no worker is ready."""
LINES = 5
"""Of a dead worker's log, for the message."""
_DETAIL = re.compile(r"exit detail: (.*?)(?: Some common causes include|\n|$)")
"""What Ray's message says besides advice."""


def pool_of(model: LanguageModel, workers: Workers, stages: Stages) -> RayPool:
    """Start the copies of a model; returns as soon as one is ready, and the others join.

    Raises:
        EditkitError: Ray cannot be reached or has no room, or a copy is not the same model.
    """
    count, threads = _connected(workers, model)
    gpus = (workers.gpus or 1) if model.device.type == "cuda" else 0
    device = "balanced" if gpus > 1 else model.device.type
    source = _absolute(model.source)
    made = {
        "source": source,
        "placement": Placement(device, model.dtype, model.asked.trust_remote_code),
        "proved": model.proved,
        "threads": threads,
    }
    crew = RayCrew(facts(model), made, {"num_cpus": threads, "num_gpus": gpus}, mixed=workers.mixed)
    pool = RayPool(min(PIECE, model.budget.tokens), Schedule(crew))
    weakref.finalize(pool, crew.close)
    with stages(f"Starting {count} workers" if count > 1 else "Starting a worker", None):
        for _ in range(count):
            crew.start()
        pool.schedule.open()
    return pool


def _connected(workers: Workers, model: LanguageModel) -> tuple[int, int]:
    """How many workers, and threads for each; connects to Ray, or starts it here, unless somebody has.

    Ray itself ends at exit what was started here; a cluster of others is only left.
    """
    on_cpu, own = model.device.type == "cpu", os.environ.get("OMP_NUM_THREADS", "")
    share = max(1, torch.get_num_threads() // (workers.count or 1)) if workers.address is None else 1
    threads = (int(own) if own.isdigit() and int(own) else share) if on_cpu else 1
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if workers.address is None:
            how["num_cpus"] = max(os.cpu_count() or 1, (workers.count or 1) * threads)
        try:
            ray.init(address=workers.address or "local", **how)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise EditkitError(
                f"--ray {workers.address or 'local'}: {first_line(error).rstrip('.')}. Start a cluster "
                "(docs/cluster.md), set RAY_AUTH_MODE=token if it wants a token, or leave --ray out to use this "
                "machine alone."
            ) from error
        # Of each death Ray prints a paragraph, on stdout, where the command's own result goes; the warning here has it.
        printing._worker_logs_enabled = False
    there = ray.cluster_resources()
    unit, each = ("CPU", threads) if on_cpu else ("GPU", workers.gpus or 1)
    room = int(there.get(unit, 0)) // each
    count = room if workers.count is None else workers.count
    if workers.address is None and room < count or count == 0:
        raise EditkitError(
            f"--workers {count}: each takes {each} {unit}, and Ray has {there.get(unit, 0):.0f} of them. Ask for "
            "fewer, or give --ray ADDRESS of a larger cluster."
        )
    room = int(ray.available_resources().get(unit, 0)) // each
    if room < count:
        warnings.warn(
            f"The cluster has room for {room} of {count} workers now; others join when it has more.", stacklevel=2
        )
    return count, threads


def _absolute(source: Source) -> Source:
    original = None if source.original is None else source.original.absolute()
    return replace(source, directory=source.directory.absolute(), original=original)


@dataclass(eq=False)
class RayPool:
    """Copies of one model on Ray, until it is closed or forgotten."""

    tokens: int
    schedule: Schedule

    @property
    def workers(self) -> int:
        return self.schedule.workers

    def run(self, work: Iterable[tuple[Piece, Arrived]]) -> None:
        self.schedule.run(work)


@dataclass
class _Actor:
    handle: Any
    slot: int
    where: Where | None = None


@dataclass
class RayCrew:
    """The actors. Whatever Ray tells comes in its own threads into one queue, and is heard in the caller's.

    Args:
        own: the facts of the model here.
        made: what a ``Copy`` is made of.
        resources: that Ray keeps for each.
    """

    own: Mapping[str, str]
    made: Mapping[str, Any]
    resources: Mapping[str, Any]
    mixed: bool = False
    actors: dict[str, _Actor] = field(default_factory=dict)
    _told: queue.SimpleQueue[tuple[str, str, int, Future[Any]]] = field(default_factory=queue.SimpleQueue)
    _came: int = 0
    _stillborn: dict[int, int] = field(default_factory=dict)
    """How often in a row who had this slot died before it was ready."""
    _token: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def start(self, slot: int | None = None) -> None:
        """Ask Ray for one more actor, in the place of one that is gone or in a new one."""
        self._came += 1
        name = f"worker {self._came}"
        base = Path(self.made["source"].base.model).name
        kind: Any = ray.remote
        kind = kind(concurrency_groups={"watched": 1})(Copy)
        handle = kind.options(
            name=f"editkit {base}, {name} ({self._token})", scheduling_strategy="SPREAD", **self.resources
        ).remote(**self.made)
        self.actors[name] = _Actor(handle, self._came if slot is None else slot)
        for method in ("where", "load"):
            self._listen(name, method, getattr(handle, method).remote())
        self._listen(name, "live", handle.live.remote())

    def send(self, worker: str, number: int, piece: Piece) -> None:
        actor = self.actors.get(worker)
        if actor is not None:  # else its death is in the queue
            name = f"{type(piece).__name__.lower()} {number}: {piece.tokens} tokens"
            self._listen(worker, "do", actor.handle.do.options(name=name).remote(piece), number)

    def wait(self, seconds: float | None) -> Sequence[Event]:
        try:
            told = [self._told.get(timeout=WAITING if seconds is None else seconds)]
        except queue.Empty:
            if seconds is None:
                left = ray.available_resources()
                free = ", ".join(f"{left.get(kind, 0):.0f} {kind}" for kind in ("GPU", "CPU"))
                warnings.warn(f"No worker is ready yet; the cluster has {free} free.", stacklevel=2)
            return []
        while not self._told.empty():
            told.append(self._told.get())
        return [event for each in told for event in self._event(*each)]

    def end(self, worker: str) -> str:
        actor = self.actors.pop(worker)
        log = _log(actor.where)
        ray.kill(actor.handle)
        self.start(actor.slot)
        return log

    def now(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        """End all actors; Ray stays."""
        for actor in self.actors.values():
            if ray.is_initialized():
                ray.kill(actor.handle)
        self.actors.clear()

    def _listen(self, worker: str, method: str, ref: Any, number: int = 0) -> None:
        ref.future().add_done_callback(partial(_tell, self._told, worker, method, number))

    def _event(self, worker: str, method: str, number: int, future: Future[Any]) -> list[Event]:
        """What the end of a call means; nothing, of who is gone already."""
        actor = self.actors.get(worker)
        error: Any = future.exception()
        if actor is None:
            return []
        if isinstance(error, exceptions.RayTaskError) and not _is_device(error.cause):
            if method == "load":
                raise error.cause
            return [Failed(worker, number, error.cause)]
        if error is not None:
            return [self._dead(worker, actor, error)]
        if method == "where":
            actor.where = future.result()
        elif method == "load":
            loaded = future.result()
            self._check(loaded, actor)
            self._stillborn.pop(actor.slot, None)
            return [Ready(worker, loaded.seconds, loaded.pace)]
        elif method == "do":
            return [Answered(worker, number, future.result())]
        return []

    def _dead(self, worker: str, actor: _Actor, error: BaseException) -> Died:
        del self.actors[worker]
        place = f"{worker} on {actor.where.host}, process {actor.where.process}" if actor.where else worker
        log = _log(actor.where)
        why = f"{place}: {_said(error)}{f' Its log ends: {log}' if log else ''}"
        if not _is_here():
            raise EditkitError(
                f"Ray has ended on this machine, and no worker can be started from here any more; the last one, {why} "
                "What was measured is kept: run the same command again."
            )
        ray.kill(actor.handle)
        self._stillborn[actor.slot] = self._stillborn.get(actor.slot, 0) + 1
        if self._stillborn[actor.slot] < DEADLY:
            self.start(actor.slot)
        elif not self.actors:
            raise EditkitError(
                f"Workers die before they have loaded the model, {DEADLY} times in a row; the last: {why}"
            )
        return Died(worker, why)

    def _check(self, loaded: Loaded, actor: _Actor) -> None:
        """Refuse a copy that would answer otherwise."""
        found = differences(self.own, loaded.facts)
        where = actor.where.host if actor.where else "a worker"
        if set(found) == {PROCESSOR} and self.mixed:
            warnings.warn(
                f"A mixed pool, whose scores may round otherwise: {found[PROCESSOR]} ({where}).", stacklevel=2
            )
        elif found:
            allowed = " --mixed-pool allows other processors." if set(found) == {PROCESSOR} else ""
            raise EditkitError(
                f"The model of a worker on {where} is not the one here: {'; '.join(found.values())}. Use the same "
                f"versions and files on all machines.{allowed}"
            )


def _tell(
    told: queue.SimpleQueue[tuple[str, str, int, Future[Any]]],
    worker: str,
    method: str,
    number: int,
    future: Future[Any],
) -> None:
    told.put((worker, method, number, future))


def _is_device(cause: BaseException) -> bool:
    """Whether a GPU failed rather than the piece: what comes after it on this worker fails too."""
    return isinstance(cause, RuntimeError) and str(cause).startswith("CUDA error")


def _said(error: Any) -> str:
    """What Ray says of a death, in a sentence."""
    cause = error.cause if isinstance(error, exceptions.RayTaskError) else error
    found = _DETAIL.search(str(cause))
    return printable((found[1] if found else first_line(cause)).strip()).rstrip(".") + "."


def _is_here() -> bool:
    """Whether Ray runs on this machine: who started the workers is gone with it, as far as they know."""
    own = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == own and node["Alive"] for node in ray.nodes())


def _log(where: Where | None) -> str:
    """The last lines of an actor's log; from another machine, if that still answers."""
    if where is None or not where.log:
        return ""
    if where.host == platform.node():
        return tail(where.log)
    try:
        there = NodeAffinitySchedulingStrategy(where.node, soft=False)
        read = ray.remote(tail).options(num_cpus=0, scheduling_strategy=there, max_retries=0)
        return ray.get(read.remote(where.log), timeout=10)
    except exceptions.RayError:
        return ""


def tail(path: str) -> str:
    """The last lines of a file on this machine, in one."""
    try:
        lines = Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    own = [
        line.strip()
        for line in lines
        if line.strip() and not line.startswith((":job_id:", ":actor_name:", ":task_name:"))
    ]
    return printable(" / ".join(own[-LINES:]))[-600:]
