"""How many copies of a model answer, and where they are.

editkit.load("meta-llama/Llama-3.1-8B-Instruct", workers=8)     # here: eight GPUs, or shares of the CPU
Placement(pool=Workers(64, address="auto", gpus=2).opener())    # on a Ray cluster, two GPUs a copy
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from editkit.errors import UsageError
from editkit.progress import Stages, silent

if TYPE_CHECKING:
    from editkit.models.language_model import LanguageModel
    from editkit.models.pool import Opener, Pool


@dataclass(frozen=True)
class Workers:
    """A pool, as it is asked for.

    Args:
        count: how many copies; None: as many as the cluster has room for.
        address: of a Ray cluster (``auto``, ``ray://head:10001``); None: this machine, or what ``ray.init`` has
            connected to already.
        gpus: for each copy, whose layers are spread over them; None: one where the model here is on a GPU.
        mixed: allow processors of other types than this one's, which round otherwise.
    """

    count: int | None = None
    address: str | None = None
    gpus: int | None = None
    mixed: bool = False

    def __post_init__(self) -> None:
        if self.count is None and self.address is None:
            raise UsageError("--gpus-per-worker and --mixed-pool say how workers run: --workers N says how many.")
        if (self.count is not None and self.count < 1) or (self.gpus is not None and self.gpus < 1):
            raise UsageError("--workers and --gpus-per-worker: expected 1 or more.")

    def opener(self, stages: Stages = silent) -> Opener:
        """What makes the copies of a model once it is loaded.

        Raises:
            UsageError: Ray is not installed; said before anything is loaded.
        """
        from importlib.util import find_spec

        if find_spec("ray") is None:
            raise UsageError("--workers and --ray need Ray, which is not installed: pip install 'editkit[ray]'")
        return _Opener(self, stages)

    def flags(self) -> list[str]:
        """The options that ask for it."""
        numbers = {"--workers": self.count, "--ray": self.address, "--gpus-per-worker": self.gpus}
        flags = [word for name, value in numbers.items() if value is not None for word in (name, str(value))]
        return [*flags, *(["--mixed-pool"] if self.mixed else [])]


@dataclass(frozen=True)
class _Opener:
    workers: Workers
    stages: Stages

    def __call__(self, model: LanguageModel) -> Pool:
        from editkit.cluster.actors import pool_of

        return pool_of(model, self.workers, self.stages)


def flags_of(opener: Opener | None) -> list[str]:
    """The options that asked for a pool; none where there is none."""
    return opener.workers.flags() if isinstance(opener, _Opener) else []
