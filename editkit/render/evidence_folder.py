"""The evidence of a removal as files in OUT, and what is rendered from them.

    OUT/README.md                 the card             OUT/editkit/localization.json   how it was found
    OUT/editkit/report.html       for the eye          OUT/editkit/report.json         before and after
    OUT/editkit/examples.jsonl.gz the examples behind it        OUT/editkit/attacks.json    what brings it back
    OUT/editkit/{heads,neurons,deltas,frontier}.png         OUT/editkit/provenance.json     where it comes from

Everything a reader sees is rendered from the JSON files; ``editkit card`` and ``editkit report`` do it again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from editkit.checkpoints.files import printable
from editkit.checkpoints.staging import beside
from editkit.checkpoints.unshipped import FIGURES
from editkit.edit import Edit
from editkit.errors import EditkitError, IntegrityError, first_line
from editkit.evidence import examples
from editkit.evidence.attacks import NAME, Attacks
from editkit.evidence.exhibits import Exhibits
from editkit.evidence.localization import Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import Provenance
from editkit.evidence.report import EvalReport
from editkit.writing import manifest


def write(directory: Path, outcome: Outcome) -> None:
    """Write all evidence into ``directory``: data, figures, card and page."""
    folder = directory / "editkit"
    folder.mkdir(exist_ok=True)
    texts = {
        "edit.json": outcome.edit.to_json(),
        "localization.json": outcome.localization.to_json(),
        "report.json": report_text(outcome),
        "provenance.json": outcome.provenance.to_json(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    if outcome.examples:
        (directory / examples.NAME).write_bytes(examples.to_bytes(outcome.examples))
    render(directory, outcome)


def report_text(outcome: Outcome) -> str:
    """``report.json``."""
    record = json.loads(outcome.report.to_json()) | outcome.exhibits.to_dict()
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render(directory: Path, outcome: Outcome) -> None:
    """Write the card, the figures and the page from the evidence."""
    from editkit.render import figures, frontier, head_map, layer_counts

    folder = directory / "editkit"
    (folder / "deltas.png").write_bytes(figures.deltas_png(outcome.report))
    if outcome.exhibits.frontier:
        (folder / "frontier.png").write_bytes(frontier.png(outcome))
    if head_map.ranks_heads(outcome):
        (folder / "heads.png").write_bytes(head_map.png(outcome.edit, outcome.localization, outcome.provenance))
    if outcome.edit.neurons:
        (folder / "neurons.png").write_bytes(layer_counts.png(outcome))
    readme, html = texts(outcome)
    (folder / "report.html").write_text(html, encoding="utf-8", newline="\n")
    (directory / "README.md").write_text(readme, encoding="utf-8", newline="\n")


def texts(outcome: Outcome) -> tuple[str, str]:
    """The card and the page."""
    from editkit.render import attacks, card, page

    outcome = attacks.shown(outcome)
    return card.render(outcome), page.render(outcome)


def read(out: Path) -> Outcome:
    """Read the evidence back.

    Raises:
        EditkitError: naming the file that is missing or is not what editkit writes.
    """

    def text(name: str) -> str:
        try:
            return (out / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EditkitError(
                f"{out}: expected {name}, which holds the evidence of a removal; {error.__class__.__name__}. "
                "Only the output of `editkit remove-capability` has one."
            ) from error

    return Outcome(
        out,
        Edit.from_json(text("editkit/edit.json")),
        Localization.from_json(text("editkit/localization.json")),
        EvalReport.from_json(text("editkit/report.json")),
        Exhibits.from_json(text("editkit/report.json")),
        Provenance.from_json(text("editkit/provenance.json")),
        examples.read(out / examples.NAME) if (out / examples.NAME).is_file() else (),
        Attacks.from_json(text(NAME)) if (out / NAME).is_file() else None,
    )


@contextmanager
def doubted(out: Path) -> Iterator[None]:
    """Evidence of others: every value may be of its kind, and what is computed from them still end in an error.

    Raises:
        IntegrityError: in place of that error.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        said = printable(first_line(error))
        raise IntegrityError(f"{printable(str(out))}: the evidence does not hold together: {said}.") from error


def render_again(out: Path) -> None:
    """Render card, figures and page from the evidence again, and record their new hashes in the manifest.

    Raises:
        IntegrityError: any other file is not what the manifest says.
    """
    record = manifest.read(out)
    rendered = ("README.md", "editkit/report.html", *(f"editkit/{figure}.png" for figure in FIGURES))
    faults = sorted((name, what) for name, what in manifest.faults(out, record).items() if name not in rendered)
    if faults:
        wrong = "; ".join(f"{printable(name)}: {what}" for name, what in faults[:20])
        raise IntegrityError(f"{printable(str(out))} is not what editkit wrote, so nothing was rendered: {wrong}.")
    with doubted(out):
        render(out, read(out))
    manifest.write(out, record)


def is_evidence_only(out: Path) -> bool:
    """True for what a run without a checkpoint left behind: it may be replaced."""
    if not out.is_dir() or out.is_symlink():
        return False
    names = {path.name for path in out.iterdir()}
    return names <= {"editkit", "README.md"} and (out / "editkit" / "localization.json").is_file()


def make_way(out: Path) -> None:
    """Remove what a run without a checkpoint left behind; anything else stays."""
    if is_evidence_only(out):
        shutil.rmtree(out)


def write_evidence(outcome: Outcome) -> None:
    """Write an outcome without a checkpoint: the goal was not met, and this is why."""
    make_way(outcome.out)
    with beside(outcome.out) as directory:
        write(directory, outcome)
