"""An output of editkit under attack: checked first, attacked in memory; ``editkit/attacks.json`` records the result.

attacks = audit_output(Path("no-swear"), chosen("quick"), BUDGETS["quick"])
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from editkit.audits import Audit
from editkit.audits.run import audited
from editkit.audits.subject import Budget, subject_of
from editkit.checkpoints.files import digest_of
from editkit.checkpoints.source import recorded, resolve
from editkit.errors import UsageError
from editkit.evidence.attacks import NAME, Attacks
from editkit.measuring.ledger import Ledger
from editkit.measuring.store import opened
from editkit.models.loading import load_source
from editkit.models.placement import Placement
from editkit.removal import recipe as recipes
from editkit.removal.capability import capability
from editkit.render import evidence_folder
from editkit.workspace import Session, work_for
from editkit.writing import manifest
from editkit.writing.manifest import Manifest
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
    """Attack the edit of ``out`` and record what comes back; the rows of other audits that were made alike stay.

    No attacked weights are written anywhere.

    Args:
        base: the unedited model, where it is no longer under the name that the edit has for it.
        never_had: a model of the base's shape that never had the capability.

    Raises:
        IntegrityError: ``out`` is not what was written.
        EditkitError: it names no recipe, or the base cannot be had.
    """
    if not (out / "editkit" / "provenance.json").is_file():
        raise UsageError(
            f"{out}: expected the output of `editkit remove-capability`, which says what was removed. What was only "
            "baked names no capability to attack."
        )
    _drop_torn(out)
    outcome = evidence_folder.read(out)
    edit = outcome.edit
    revision = recorded(base, edit.base) if base else edit.base.revision
    source = resolve(base or edit.base.model, revision, stages=session.stages)
    verify(out, source, stages=session.stages)
    recipe = recipes.parse(outcome.provenance.recipe_text, where=f"{out}/editkit/provenance.json")
    wanted = capability(recipe, allow_code=session.allow_code)
    with ExitStack() as stack:
        store = stack.enter_context(opened(work_for(source.base, recipe.capability, seed, session.work).store))
        ledger = Ledger(load_source(source, placement), store, session.stages)
        other = (
            None
            if never_had is None
            else replace(ledger, model=load_source(resolve(never_had), replace(placement, pool=None)))
        )
        subject = subject_of(ledger, edit.units, wanted, budget, never_had=other, seed=seed)
        attacks = audited(subject, audits, edit)
    return record(out, attacks)


def record(out: Path, attacks: Attacks) -> Attacks:
    """Write ``attacks`` beside ``out``'s evidence; card, page and manifest follow.

    The rows of other audits that were made alike stay: what is returned has them too.
    """
    written = manifest.read(out)
    before = evidence_folder.read(out).attacks if NAME in written.files else None
    if before is not None and before.settings == attacks.settings:
        attacks = before.joined(attacks)
    staged = out / f"{NAME}.new"
    staged.write_text(attacks.to_json(), encoding="utf-8", newline="\n")
    staged.replace(out / NAME)
    manifest.write(out, written, known=_digests(written))
    evidence_folder.render_again(out)
    return attacks


def _drop_torn(out: Path) -> None:
    """What a record that was stopped half-way left: its attacks are measured again, mostly from the store."""
    written = manifest.read(out)
    (out / f"{NAME}.new").unlink(missing_ok=True)
    recorded = written.files[NAME][0] if NAME in written.files else None
    if (out / NAME).exists() and digest_of(out / NAME) != recorded:
        (out / NAME).unlink()
        manifest.write(out, written, known=_digests(written))


def _digests(written: Manifest) -> dict[str, str]:
    """Of every file but the record itself, as they are known."""
    return {name: digest for name, (digest, _) in written.files.items() if name != NAME}
