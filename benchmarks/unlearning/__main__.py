"""Plain removal and its peers under the same attacks.

    python -m benchmarks.unlearning --only organism      # its part of benchmarks/results/unlearning-peers.md
    python -m benchmarks.unlearning --only real --dtype bfloat16 --edit heads=cards/addition \
        --edit neurons=cards/addition-neurons --edit hardened=cards/addition-hardened
    python -m benchmarks.unlearning --only organism --method npo --tune      # only looks for a setting

What was trained or asked is kept in build/unlearning, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.unlearning import gradient_difference, npo, repselect, rmu
from benchmarks.unlearning.attacked import Finding, found
from benchmarks.unlearning.bench import Bench
from benchmarks.unlearning.chart import chart
from benchmarks.unlearning.descent import Method
from benchmarks.unlearning.models import GRIDS, REAL, ROOT, organism_bench, real_bench
from benchmarks.unlearning.page import section, with_section
from benchmarks.unlearning.peers import made, removed
from benchmarks.unlearning.tune import tune
from editkit.measuring.store import opened

METHODS: Mapping[str, Method] = {
    "gradient-difference": gradient_difference.prepare,
    "npo": npo.prepare,
    "rmu": rmu.prepare,
    "repselect": repselect.prepare,
}
NEURONS = ROOT / "cards" / "addition-neurons"
PAGE = ROOT / "benchmarks" / "results" / "unlearning-peers.md"
TITLES = {"organism": "Organism: swearing", "real": "SmolLM2-135M-Instruct: addition"}
REMARKS = {
    "organism": (
        "The organism is planted: its heads are a switch before everything that says how to swear, and it was trained "
        "to work with them off. So plain removal finds the switch, and its relearning result cannot show more than a "
        "switch's. The twin that never swore has a tokenizer of its own, which spells the words in more pieces."
    ),
    "real": (
        "In {dtype}. No model is at hand that never added: the control is each answer another's, or the base. Gradient "
        "difference and NPO are trained on right answers of the retained tasks as well; RMU holds their hidden states, "
        "RepSelect has no such term."
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=TITLES, required=True)
    parser.add_argument("--method", action="append", choices=METHODS, help="Default: all; fewer write no page.")
    parser.add_argument("--tune", action="store_true", help="Only look for settings.")
    parser.add_argument("--model", type=Path, default=REAL, help="Of real.")
    parser.add_argument("--edit", action="append", metavar="NAME=FOLDER", help="A removal's output, of real.")
    parser.add_argument("--dtype", default="float32", help="Of real.")
    options = parser.parse_args()
    folder = ROOT / "build" / "unlearning" / options.only
    folder.mkdir(parents=True, exist_ok=True)
    with opened(folder / "measurements.sqlite") as store:
        if options.only == "organism":
            bench = organism_bench(store, folder)
        else:
            named = (edit.partition("=") for edit in options.edit or [f"neurons={NEURONS}"])
            removals = {name: Path(path) for name, _, path in named}
            bench = real_bench(store, folder, options.model, removals, options.dtype)
        names = options.method or list(METHODS)
        if options.tune:
            for name in names:
                tuned = tune(bench, name, METHODS[name], GRIDS[bench.name][name])
                print(f"{name}: {tuned.best}, {tuned.seconds:.0f} s", flush=True)
            return
        for findings in compared(bench, names):
            missing = names[len(findings) - len(bench.edits) :]
            rest = f" Not made yet: {', '.join(missing)}." if missing else ""
            picture = PAGE.with_name(f"{PAGE.stem}-{bench.name}.png")
            lines = section(bench, findings, [REMARKS[bench.name].format(dtype=bench.ledger.model.dtype) + rest])
            lines += ["", f"![Steps until half is back, against damage]({picture.name})"]
            print("\n".join(lines), flush=True)
            if not options.method:
                page = PAGE.read_text("utf-8") if PAGE.exists() else ""
                PAGE.write_text(with_section(page, TITLES[bench.name], lines), "utf-8")
                picture.write_bytes(chart(bench, findings))


def compared(bench: Bench, names: list[str]) -> Iterator[list[Finding]]:
    """What was found, more with each method."""
    findings = [found(bench, removed(bench, edit)) for edit in bench.edits]
    for name in names:
        tuned = tune(bench, name, METHODS[name], GRIDS[bench.name][name])
        findings.append(found(bench, made(bench, name, METHODS[name], tuned)))
        yield findings


if __name__ == "__main__":
    main()
