"""Where a result comes from: everything needed to check it or to make it again.

{"command": "editkit remove-capability swear --model meta-llama/Llama-3.2-1B-Instruct --out no-swear --seed 0",
 "date": "2026-11-21", "recipe": "swear", "seeds": {"localize": 0}, "versions": {"editkit": "0.1.0", ...},
 "base": {"model": "meta-llama/Llama-3.2-1B-Instruct", "revision": "9213176...", "source": "hub", ...},
 "shape": [{"layer": 0, "heads": 32, "groups": 8, "neurons": 8192}, ...], "hashes": {"model.safetensors": "ab12..."}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from editkit.errors import EditkitError
from editkit.evidence.typed import document, typed

Source = Literal["hub", "local", "bundled"]
Format = Literal["checkpoint", "lora", "evidence"]
"""What lies beside the card; ``evidence``: the criteria were not met and no model was written."""


@dataclass(frozen=True)
class BaseModel:
    """The unedited model, as its own card describes it. Text fields are what that card says: never trusted.

    Args:
        model: a Hub id (``source="hub"``), a folder (``"local"``) or the bundled model's name (``"bundled"``). Only a
            Hub id is ever published as ``base_model``.
        license: the licence id of the base's card (``apache-2.0``, ``llama3.2``, ``other``), if it names one.
        quantization: how the weights are stored in the GGUF file that the base is: ``Q4_1 x 210, F32 x 61``.
        notices: lines that the licence asks every derivative to carry ("Built with Llama").
    """

    model: str
    revision: str | None = None
    source: Source = "local"
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    notices: tuple[str, ...] = ()
    pipeline_tag: str | None = None
    tags: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    dtype: str | None = None
    quantization: str | None = None


@dataclass(frozen=True)
class LayerShape:
    """How many query heads a layer has, how many key/value groups they share (None: not known), how many neurons."""

    layer: int
    heads: int
    groups: int | None = None
    neurons: int = 0


@dataclass(frozen=True)
class Provenance:
    """How the edited model was made. Everything is given by the caller: nothing here reads a clock or a machine.

    Args:
        recipe: the recipe's name; ``recipe_text`` its YAML as run.
        removes: the capability in a few words, for headings: "Swearing on request". Empty: the recipe's name.
        date: ISO date of the run.
        seeds, versions, hashes: by name; hashes are sha256 of the files the reader may want to check first.
        shape: the reachable layers, for the head map.
        override: what was not met where a result was published all the same; None where nothing was overridden.
        look: how many edits of this base were judged by these ``report`` examples, this one included, as far as the
            store of measurements goes back; None where nobody counted.
        fresh: where the run was kept to examples that no earlier run of its store had looked at, whether they were
            still so in the end; None where it took the first of each task.
        repo: ``owner/name`` where it was published, as the push wrote it: card and page then name it in their commands.
    """

    command: str
    recipe: str
    recipe_text: str
    base: BaseModel
    date: str
    removes: str = ""
    format: Format = "checkpoint"
    seeds: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    shape: tuple[LayerShape, ...] = ()
    override: str | None = None
    look: int | None = None
    fresh: bool | None = None
    repo: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "provenance") -> Provenance:
        """Back from ``to_json``.

        Raises:
            EditkitError: naming ``where`` when the text is not a provenance.
        """
        try:
            return typed(cls, document(text))
        except (ValueError, RecursionError) as error:
            raise EditkitError(f"{where} is not JSON: {error}.") from error
        except TypeError as error:
            raise EditkitError(f"{where}: expected the provenance of a run, found something else: {error}.") from error
