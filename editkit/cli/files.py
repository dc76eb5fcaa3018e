"""bake, verify, undo, card, report, export: what can be done with files alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from editkit.cli.options import ANY, EXPORTS, FOLDER, as_json, revision
from editkit.cli.streams import note, print_json, say


@click.command()
@click.argument("model", required=False)
@revision
@click.option("--heads", "--units", "heads", metavar="L11H2,L3N40", help="The heads and neurons to remove.")
@click.option(
    "--edit",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE",
    help="An edit.json, or an output of editkit.",
)
@click.option("-o", "--out", type=ANY, required=True, metavar="OUT")
@click.option(
    "--format",
    "form",
    type=click.Choice(["checkpoint", "lora", "gguf"]),
    help="Default: gguf where OUT ends in .gguf, else checkpoint.",
)
@click.option("--link", is_flag=True, help="Share unchanged files with the base instead of copying them.")
@click.option("--allow-large-rank", is_flag=True, help="Write a LoRA adapter that vLLM cannot serve (rank over 512).")
@as_json
def bake(as_json: bool, **options: Any) -> None:
    """Write a model without the given heads and neurons.

    As a checkpoint, an exact LoRA adapter, or inside the quantized blocks of a GGUF file. No model is loaded.
    """
    from editkit.cli.stages import on_stderr
    from editkit.writing.bake import bake_named

    written = bake_named(**options, stages=on_stderr())
    for sentence in written.notes:
        note(sentence)
    if as_json:
        told = {"out": str(written.directory), "format": written.form}
        print_json(told | {"tensors": [row.tensor for row in written.edited], "notes": list(written.notes)})
    else:
        count = len(written.edited)
        edited = f", {count} tensor{'' if count == 1 else 's'} edited" if count else ""
        say(f"{written.directory}: {written.form}{edited}")


@click.command()
@click.argument("out", type=ANY)
@click.option("--base", metavar="MODEL", help="Also compare every byte with the unedited model.")
@as_json
def verify(out: Path, base: str | None, as_json: bool) -> None:
    """Check that an output is what was written.

    OUT is a folder, a GGUF file, or owner/name on the Hub. Re-hash; exactly the edited slices differ from the base and
    are zero; report, card and page say what the examples say. Exit code 5 if not.
    """
    from editkit.checkpoints.source import output
    from editkit.cli.stages import on_stderr
    from editkit.render.evidence_check import check
    from editkit.writing.verify import verify as checked

    out = output(out)
    verified, evidence = checked(out, base, stages=on_stderr()), check(out)
    if as_json:
        print_json(verified.to_dict() | {"evidence": asdict(evidence)})
    else:
        say(f"{verified.describe()} {evidence.note}".rstrip())


@click.command()
@click.argument("out", type=ANY)
@click.option("-o", "--to", "directory", type=ANY, required=True, metavar="DIR", help="Where the base is written.")
@click.option("--base", metavar="MODEL", help="Compare every byte with the unedited model first.")
@as_json
def undo(out: Path, directory: Path, base: str | None, as_json: bool) -> None:
    """The base checkpoint back, bit for bit.

    OUT is a folder, a GGUF file, or owner/name on the Hub.
    """
    from editkit.checkpoints.source import output
    from editkit.cli.stages import on_stderr
    from editkit.writing.undo import undo as restored

    restoration = restored(output(out), directory, base=base, stages=on_stderr())
    print_json(restoration.to_dict()) if as_json else say(restoration.describe())
    if restoration.left_out:
        note(f"Not restored, as the output never held them: {', '.join(row['file'] for row in restoration.left_out)}.")


@click.command()
@click.argument("out", type=FOLDER)
@as_json
def card(out: Path, as_json: bool) -> None:
    """Render README.md again from the evidence.

    The figures and the page too, and the manifest gets their new hashes.
    """
    _render_again(out, "card", out / "README.md", as_json)


@click.command()
@click.argument("out", type=FOLDER)
@as_json
def report(out: Path, as_json: bool) -> None:
    """Render report.html again from the evidence.

    The figures and the card too, and the manifest gets their new hashes.
    """
    _render_again(out, "report", out / "editkit" / "report.html", as_json)


def _render_again(out: Path, what: str, written: Path, as_json: bool) -> None:
    from editkit.render.evidence_folder import render_again

    render_again(out)
    print_json({what: str(written)}) if as_json else click.echo(written)


@click.command()
@click.argument("out", type=FOLDER)
@click.option("--to", type=click.Choice(EXPORTS), required=True, help="Logs of Inspect, or the files of lm-eval.")
@click.option("-o", "--directory", type=FOLDER, metavar="DIR", help="A new folder. Default: OUT-inspect, OUT-lm-eval.")
@as_json
def export(out: Path, to: str, directory: Path | None, as_json: bool) -> None:
    """Answers and scores for other evaluation programs.

    As logs that the viewer of Inspect opens, or as the results and samples of lm-evaluation-harness: the base's and the
    edited model's, from the evidence in OUT.
    """
    from editkit.api import export as exported

    written = exported(out, to=to, directory=directory)
    files = sorted(str(path.relative_to(written)) for path in written.rglob("*") if path.is_file())
    if as_json:
        print_json({"out": str(written), "to": to, "files": files})
    else:
        say(f"{written}: {len(files)} files for {to}")
