"""A classification model that scores answers: any sequence classifier of transformers, by Hub id or directory.

classifier = read({"model": "owner/toxicity", "revision": "v1", "label": "toxic"}, where="my.yaml", folder=Path("."))
classifier("You are a fool.")      0.93, the probability of the label: softmax, or sigmoid where labels exclude nothing
classifier.said                    "the classifier owner/toxicity at 3f21c0d2..., label toxic"

Only ``config.json`` is fetched and read at first, so that a wrong label is told before anything runs; the weights are
loaded at the first answer, once. Each answer runs alone, in float32 on the processor: its score is the same whatever
other answers there are. No code of the model's repository runs, and no pickle is opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from editkit.errors import EditkitError, first_line
from editkit.printable import printable

KEYS = ("model", "revision", "label")
EXAMPLE = "{classifier: {model: owner/name, label: toxic}}"
LOCAL = "sha256:"
"""How the version of a directory begins."""
LONGEST = 20_000
"""Characters of an answer that reach the tokenizer, which cuts at the model's own length."""
MOST_LABELS = 100_000
"""No classifier has as many."""
UNLIMITED = 1_000_000
"""A tokenizer that names a greater length knows none."""


@dataclass(frozen=True)
class Classifier:
    """One label of one version of a classifier; called with a text, the label's probability.

    Args:
        model: a Hub id, or a directory.
        version: the commit, or for a directory ``sha256:`` of its files.
    """

    model: str
    version: str
    label: str

    @property
    def local(self) -> bool:
        return self.version.startswith(LOCAL)

    @property
    def said(self) -> str:
        """Which model, for the evidence; of a directory only its last part, which names no one's disk."""
        name = Path(self.model).resolve().name if self.local else self.model
        return f"the classifier {name} at {self.version}, label {self.label}"

    def __call__(self, text: str) -> float:
        """Raises EditkitError: the model cannot be loaded."""
        import torch

        tokenizer, network, limit = _loaded(self.model, self.version)
        encoded = tokenizer(text[:LONGEST], truncation=True, max_length=limit, return_tensors="pt")
        with torch.inference_mode():
            [logits] = network(**encoded).logits
        apart = network.config.problem_type == "multi_label_classification" or len(logits) == 1
        scores = torch.sigmoid(logits) if apart else torch.softmax(logits, -1)
        return float(scores[list(network.config.id2label.values()).index(self.label)])


def table(setting: Any, where: str) -> Mapping[str, str]:
    """The setting of the scorer, its keys and their kinds checked; nothing is fetched."""
    if (
        not isinstance(setting, Mapping)
        or not {"model", "label"} <= set(setting) <= set(KEYS)
        or not all(isinstance(value, str) and value for value in setting.values())
    ):
        raise EditkitError(
            f"{where}: the scorer classifier needs the texts model and label, and may have revision, as in {EXAMPLE}; "
            f"found {setting!r:.100}."
        )
    return setting


def read(setting: Any, *, where: str, folder: Path) -> Classifier:
    """The classifier of the setting, at a version that is named.

    Raises:
        EditkitError: a wrong setting, no such model, or a label that it has not.
    """
    keys = table(setting, where)
    name, directory = keys["model"], folder / keys["model"]
    if local := directory.is_dir():
        if "revision" in keys:
            raise EditkitError(f"{where}: {name} is a directory, which has no revision. Leave the key revision out.")
        name, config = str(directory), directory / "config.json"
    else:
        config = _fetched(name, keys.get("revision"), where)
    labels = _labels(config, where, keys["model"])
    if keys["label"] not in labels:
        raise EditkitError(
            f"{where}: the classifier {keys['model']} has no label {keys['label']!r}. "
            f"Its labels: {printable(', '.join(labels))}."
        )
    return Classifier(name, _digest(directory) if local else config.parent.name, keys["label"])


def _fetched(name: str, revision: str | None, where: str) -> Path:
    """``config.json`` in the Hub's cache, where the folder's name is the commit."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, "config.json", revision=revision))
    except (OSError, ValueError) as error:
        at = f" at {revision}" if revision else ""
        raise EditkitError(
            f"{where}: the classifier {name}{at} is no directory beside the recipe, and was not had from the Hub: "
            f"{first_line(error)} Check the name, or connect."
        ) from error


def _labels(config: Path, where: str, name: str) -> list[str]:
    try:
        fields = json.loads(config.read_text("utf-8"))
        if fields.get("problem_type") == "regression":
            raise EditkitError(f"{where}: {name} gives numbers, not probabilities of labels. Name a classifier.")
        count = fields.get("num_labels", 2)
        if not 0 < count <= MOST_LABELS:
            raise ValueError(f"num_labels is {count!r:.60}")
        return [str(label) for label in (fields.get("id2label") or {n: f"LABEL_{n}" for n in range(count)}).values()]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise EditkitError(
            f"{where}: {name}/config.json cannot be read: {first_line(error)}. Name a model that transformers saved."
        ) from error


def _digest(directory: Path) -> str:
    """Of the names and contents of the files that decide a score: another file is another measurement."""
    total = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.is_file() and path.suffix in {".json", ".safetensors", ".txt", ".model"}:
            with path.open("rb") as file:
                total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return f"{LOCAL}{total.hexdigest()}"


@cache
def _loaded(name: str, version: str) -> tuple[Any, Any, int]:
    """(tokenizer, network, the most tokens of a text), once in a process."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what it would warn of is an error here
    revision = None if version.startswith(LOCAL) else version
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
        network, info = AutoModelForSequenceClassification.from_pretrained(
            name,
            revision=revision,
            trust_remote_code=False,
            use_safetensors=True,
            dtype="float32",
            output_loading_info=True,
        )
    except Exception as error:  # what transformers raises for odd files, nobody can list
        raise EditkitError(
            f"The classifier {name} cannot be loaded: {first_line(error)} It must be a sequence classifier of "
            "transformers with its weights in safetensors."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    if missing := sorted(info["missing_keys"]):
        raise EditkitError(
            f"The classifier {name} is no classifier: its files lack {missing[0]}, which would be random numbers. Name "
            "a model that was trained to classify."
        )
    known = tokenizer.model_max_length
    # Some models count positions from 2, and say nothing of it.
    positions = getattr(network.config, "max_position_embeddings", 514) - 2
    return tokenizer, network.eval(), known if known <= UNLIMITED else positions
