"""An output of editkit under attack: checked first, attacked in memory; ``editkit/attacks.json`` records the result.

found = audit_output(Path("no-swear"), AUDITS, BUDGETS["quick"])
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from editkit.audits import Audit
from editkit.audits.run import audited
from editkit.audits.subject import Budget, subject_of
from editkit.checkpoints.source import Source, recorded, resolve
from editkit.edit import Edit
from editkit.errors import EditkitError, UsageError
from editkit.evidence.attacks import NAME, Attacks
from editkit.evidence.provenance import Provenance
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.loading import load_source
from editkit.models.placement import Placement
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.render.evidence_folder import render_again
from editkit.workspace import Session, work_for
from editkit.writing import manifest
from editkit.writing.verify import verify


def audit_output(
    out: Path,
    audits: Mapping[str, Audit],
    budget: Budget,
    *,
    base: str | None = None,
    never_had: str | None = None,
    seed: int = 0,
    placement: Placement = Placement(),
    session: Session = Session(),
) -> Attacks:
    """Attack the edit of ``out`` and record what was found; the rows of other audits that were made alike stay.

    No attacked weights are written anywhere.

    Args:
        base: the unedited model, where it is no longer under the name that the edit has for it.
        never_had: a model of the base's shape that never had the capability.

    Raises:
        IntegrityError: ``out`` is not what was written.
        EditkitError: it names no recipe, or the base cannot be had.
    """
    edit, provenance = _edit(out), _provenance(out)
    source = _base(edit, base, session)
    verify(out, source, stages=session.stages)
    recipe = recipes.parse(provenance.recipe_text, where=f"{out}/editkit/provenance.json")
    wanted = capability(recipe, allow_code=session.allow_code)
    with ExitStack() as stack:
        store = stack.enter_context(opened(work_for(source.base, recipe.capability, seed, session.work).store))
        ledger = Ledger(load_source(source, placement), store, session.stages)
        other = None if never_had is None else replace(ledger, model=load_source(resolve(never_had), placement))
        subject = subject_of(ledger, edit.units, wanted, budget, never_had=other, seed=seed)
        found = audited(subject, audits, edit)
    return record(out, found)


def read(out: Path) -> Attacks | None:
    """What is recorded of ``out``; None: it was not audited."""
    try:
        text = (out / NAME).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise EditkitError(f"{out}: {NAME} cannot be read ({error}).") from error
    return Attacks.from_json(text, where=f"{out}/{NAME}")


def record(out: Path, found: Attacks) -> Attacks:
    """Write what was found beside ``out``'s evidence; card, page and manifest follow.

    The rows of other audits that were made alike stay: what is returned has them too.
    """
    written = manifest.read(out)
    before = read(out) if NAME in written.files else None
    if before is not None and before.settings == found.settings:
        found = before.joined(found)
    (out / NAME).write_text(found.to_json(), encoding="utf-8", newline="\n")
    manifest.write(out, written)
    render_again(out)
    return found


def _base(edit: Edit, base: str | None, session: Session) -> Source:
    at = recorded(base, edit.base) if base else edit.base.revision
    return resolve(base or edit.base.model, at, stages=session.stages)


def _edit(out: Path) -> Edit:
    path = out / "editkit" / "edit.json"
    try:
        return Edit.from_json(path.read_text("utf-8"), where=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{out}: expected an output of editkit, found no editkit/edit.json.") from error


def _provenance(out: Path) -> Provenance:
    path = out / "editkit" / "provenance.json"
    try:
        return Provenance.from_json(path.read_text("utf-8"), where=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{out}: expected the output of `editkit remove-capability`, which says what was removed. What was only "
            "baked names no capability to attack."
        ) from error
