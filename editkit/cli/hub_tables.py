"""What publishing and checking print: before the long work, every file that went, and what was confirmed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from editkit.cli.shapes import pairs
from editkit.render.inert import clean

if TYPE_CHECKING:
    from editkit.hub import Preflight, Pushed, Verification

KINDS = {"upload": "bold", "copy": "green", "keep": "dim", "delete": "yellow"}


def preflight(checked: Preflight) -> RenderableType:
    """What will be published where, and what to know about it, before anything heavy."""
    state = f"{'exists' if checked.exists else 'new'}, {'private' if checked.private else 'public'}"
    facts = {"will go to": f"{checked.repo} ({state}), as {checked.user}"}
    if checked.base_on_hub:
        gated = ", gated or private" if checked.gated else ""
        facts["base"] = f"on this server{gated}; licence: {checked.license or 'not named on its card'}"
    if checked.bytes is not None:
        facts["size"] = f"about {checked.bytes:,} bytes, like the base; unchanged shards of a base there are copied"
    return Group(pairs(facts | _notes(checked.notes)), Text())


def pushed(found: Pushed, *, dry_run: bool = False) -> RenderableType:
    """Every operation with its bytes, the totals, and where it went."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for operation in found.operations:
        style = KINDS[operation.kind]
        table.add_row(
            Text(operation.kind, style), Text(f"{operation.bytes:,}", style), Text(clean(operation.path), style)
        )
    kinds = Counter(operation.kind for operation in found.operations)
    totals = [f"{kind} {found.bytes(kind):,} bytes in {_files(count)}" for kind, count in kinds.items()]
    state = "private" if found.private else "public"
    facts = {"in all": "; ".join(totals)}
    facts["would go to" if dry_run else "published at"] = f"{found.pull_request or found.url} ({state})"
    if dry_run:
        facts["dry run"] = "nothing was changed anywhere"
    if found.commit:
        facts["commit"] = f"{found.commit}; the files there were compared with the manifest"
    return Group(Text(), table, Text(), pairs(facts | _notes(found.notes)), Text())


def verification(found: Verification) -> RenderableType:
    """What was confirmed of a published edit."""
    facts = {
        "edit": f"{found.repo} at {found.commit}",
        "base": f"{found.base.model} at {found.base.revision}",
        "zeroed": f"{', '.join(found.units) or 'nothing'}: {found.zeroed:,} bytes, each seen to be zero",
        "edited": ", ".join(found.edited) or "no file",
        "unchanged": f"{_files(found.unchanged)}, the base's by hash",
        "read": f"{found.read:,} bytes",
    } | ({"evidence": found.evidence} if found.evidence else {})
    line = Text.assemble((" ✓ ", "bold green"), ("Exactly the stated slices differ from the base.", "bold green"))
    return Group(Text(), line, Text(), pairs(facts), Text())


def _notes(notes: tuple[str, ...]) -> dict[str, str]:
    return {"note" if len(notes) == 1 else f"note {place}": text for place, text in enumerate(notes, 1)}


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
