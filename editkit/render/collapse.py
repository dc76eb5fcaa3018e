"""What is said of collapse: answers that are empty, broken or repetitive show no capability, and are no removal."""

from __future__ import annotations

from editkit.evidence.row import Row

NOTABLE = 0.05
"""From this share on collapse is named beside the score; below it is in the table."""


def collapse_note(row: Row) -> str:
    """A score that fell because answers broke down is no removal: said wherever the fall is."""
    if row.collapse_after < NOTABLE:
        return ""
    return f"{100 * row.collapse_after:.1f} % of the answers collapsed and count as not removed"
