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


def pushed(push: Pushed, *, dry_run: bool = False) -> RenderableType:
    """Every operation with its bytes, the totals, and where it went."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for operation in push.operations:
        style = KINDS[operation.kind]
        table.add_row(
            Text(operation.kind, style), Text(f"{operation.bytes:,}", style), Text(clean(operation.path), style)
        )
    kinds = Counter(operation.kind for operation in push.operations)
    totals = [f"{kind} {push.bytes(kind):,} bytes in {_files(count)}" for kind, count in kinds.items()]
    state = "private" if push.private else "public"
    facts = {"in all": "; ".join(totals)}
    facts["would go to" if dry_run else "published at"] = f"{push.pull_request or push.url} ({state})"
    if dry_run:
        facts["dry run"] = "nothing was changed anywhere"
    if push.commit:
        facts["commit"] = f"{push.commit}; the files there were compared with the manifest"
    return Group(Text(), table, Text(), pairs(facts | _notes(push.notes)), Text())


def verification(checked: Verification) -> RenderableType:
    """What was confirmed of a published edit."""
    facts = {
        "edit": f"{checked.repo} at {checked.commit}",
        "base": f"{checked.base.model} at {checked.base.revision}",
        "zeroed": f"{', '.join(checked.units) or 'nothing'}: {checked.zeroed:,} bytes, each seen to be zero",
        "edited": ", ".join(checked.edited) or "no file",
        "unchanged": f"{_files(checked.unchanged)}, the base's by hash",
        "read": f"{checked.read:,} bytes",
    } | ({"evidence": checked.evidence} if checked.evidence else {})
    line = Text.assemble((" ✓ ", "bold green"), ("Exactly the stated slices differ from the base.", "bold green"))
    return Group(Text(), line, Text(), pairs(facts), Text())


def _notes(notes: tuple[str, ...]) -> dict[str, str]:
    return {"note" if len(notes) == 1 else f"note {number}": text for number, text in enumerate(notes, 1)}


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
