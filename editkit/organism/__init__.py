"""The organism: a small trained model that ships inside, with planted heads as ground truth (docs/organism.md).

path() is a Hugging Face checkpoint directory; what was planted, and measured, is in ``manifest.json`` beside this file.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["path"]


def path() -> Path:
    """The packaged checkpoint directory: config, weights, tokenizer, card."""
    return Path(__file__).parent / "model"
