"""What every part of a run needs: the live model, its units of one kind, how much is asked, where results are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from editkit.checkpoints.knockout import Knockout
from editkit.checkpoints.sites import Site
from editkit.errors import EditkitError
from editkit.measuring.ledger import Ledger
from editkit.reliability.plan import Settings


@dataclass(frozen=True)
class Bench:
    """Units are counted from 0, over the sites of their kind."""

    ledger: Ledger
    settings: Settings
    folder: Path
    seed: int = 0

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The sites of the units that are located.

        Raises:
            EditkitError: none can be reached.
        """
        architecture, units = self.ledger.model.architecture, self.settings.units
        sites = architecture.sites if units == "heads" else architecture.neuron_sites
        if not sites:
            raise EditkitError(f"This {architecture.model_type} has no {units} that can be reached; try other --units.")
        return sites

    @cached_property
    def layer(self) -> np.ndarray:
        """int[units]: the layer of each."""
        return np.repeat([site.layer for site in self.sites], [site.units for site in self.sites])

    def knockout(self, chosen: np.ndarray) -> Knockout:
        """The knockout of bool[units]."""
        first = 0 if self.settings.units == "heads" else len(self.ledger.model.architecture.heads)
        return Knockout.of(np.flatnonzero(chosen) + first)

    def kept(self, kind: str, basis: object, make: Callable[[], bytes]) -> bytes:
        """What ``make`` returns, made once: later runs with an equal ``basis`` on this model read it from its file.

        Args:
            kind: the folder that it is kept in.
            basis: all it depends on besides the model; told apart by ``repr``.
        """
        model = self.ledger.model
        whole = (model.source.base.revision, model.architecture.layout, model.dtype, model.device.type, basis)
        path = self.folder / kind / hashlib.sha256(repr(whole).encode()).hexdigest()[:24]
        if not path.is_file():
            data = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_bytes(data)
            partial.replace(path)
        return path.read_bytes()
