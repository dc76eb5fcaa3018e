"""Texts as they are compared: ``" Paris."`` is ``"paris"``."""

from __future__ import annotations

import unicodedata


def plain(text: str) -> str:
    """Case, width, outer space and outer punctuation removed: ``" Paris."`` -> ``"paris"``."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.strip(" \"'`*_.,;:!?()[]{}“”‘’")
