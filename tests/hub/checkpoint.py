"""A small checkpoint in shards, and what a finished run makes of it: edited, measured, with a card and a manifest.

base = save_base(tmp_path / "base")                              several shards, config, LICENSE, card
finish(tmp_path / "out", base, Base("team/base", "9f2c..."))     L1H2 and L1H0 removed
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from editkit.checkpoints.source import Source
from editkit.edit import Base, Edit
from editkit.render import evidence_folder
from editkit.units import parse_all
from editkit.writing.export.checkpoint import stage
from tests.made_evidence import RECIPE, measured

UNITS = ("L1H0", "L1H2")
CARD = "---\nlicense: apache-2.0\nlibrary_name: transformers\nbase_model: team/base\n---\n# Without swearing\n\nText.\n"
BASE_CARD = "---\nlicense: apache-2.0\nlibrary_name: transformers\n---\n# Base\n"
REASON = "swear: 0.41 left, at most 0.10 <b>wanted</b>"


def save_base(directory: Path) -> Path:
    """A random Llama of 4 layers, saved as transformers saves it, in several shards."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(directory, max_shard_size="160KB")
    (directory / "README.md").write_text(BASE_CARD)
    (directory / "LICENSE").write_text("The licence text of the base.\n")
    return directory


def finish_measured(out: Path, base: Path, named: Base) -> Path:
    """The same with evidence whose rows are computed from its examples."""
    outcome = replace(measured(), edit=Edit(named, parse_all(",".join(UNITS))))
    with stage(outcome.edit, Source(base, named), out, recipe=RECIPE) as written:
        evidence_folder.write(written.directory, outcome)
    return out


def finish(out: Path, base: Path, named: Base, *, met: bool = True, card: str = CARD, report: bool = True) -> Path:
    """The directory a run leaves behind."""
    edit = Edit(named, parse_all(",".join(UNITS)))
    verdict = {"met": met, "reasons": [] if met else [REASON]}
    with stage(edit, Source(base, named), out) as written:
        (written.directory / "README.md").write_text(card)
        (written.directory / "editkit/report.html").write_text("<!doctype html><title>Report</title>")
        if report:
            (written.directory / "editkit/report.json").write_text(json.dumps({"rows": [], "verdict": verdict}))
    return out
