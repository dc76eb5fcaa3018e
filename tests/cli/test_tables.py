"""What people see: the numbers of the evidence at any width, on any stream; progress goes to stderr.

If one fails: the terminal shows other numbers than the report, or a pipe gets progress bars as data.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from editkit.checkpoints.architecture import Architecture, Site, Unreachable
from editkit.cli import score_tables, tables
from editkit.cli.stages import on_stderr
from editkit.evidence.intervals import Interval
from editkit.evidence.outcome import Outcome
from editkit.localizers.universal import Universals
from editkit.planning.inspection import Format, Inspection
from editkit.removal.comparison import Standing, Standings
from editkit.render import wording
from editkit.units import Head
from tests.made_evidence import evidence

ROOT = Path(__file__).parents[2]


def shown(thing: Any, width: int = 140, **options: Any) -> str:
    stream = io.StringIO()
    settings: dict[str, Any] = {"color_system": None} | options
    Console(file=stream, width=width, **settings).print(thing)
    return stream.getvalue()


def outcome(found: Outcome, **changes: Any) -> Outcome:
    return replace(found, out=Path("build/a demo"), provenance=replace(found.provenance, **changes))


@pytest.mark.parametrize("width", [50, 80, 100, 140])
def test_the_summary_fits_and_keeps_every_task(width):
    found = evidence()
    text = shown(tables.removal(outcome(found)), width)
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= width
    for row in found.report.rows:
        line = next(line for line in lines if line.split()[:1] == [row.task])
        for part in (row.n, wording.percent(row.before.mean), wording.percent(row.after.mean)):
            assert str(part) in line.split()
        assert wording.points(row.delta.mean) in line.split()
        assert width < 80 or wording.span(row.delta) in line
    assert "Criteria met" in text and "L1H5" in text and "README.md" in text


def test_wider_terminals_show_more_columns():
    report = evidence().report
    heads = {
        width: next(x for x in shown(score_tables.evaluation(report), width).splitlines() if "task" in x)
        for width in (50, 80, 120)
    }
    assert "interval" not in heads[50] and "interval" in heads[80] and "collapse" in heads[120]


@pytest.mark.parametrize("status", ["goal-missed", "too-much-damage"])
def test_a_refusal_says_so_first_and_names_no_model(status):
    text = shown(tables.removal(outcome(evidence(status), format="evidence")))
    assert "Criteria not met" in text.strip().splitlines()[0]
    assert "README.md" not in text and "editkit undo" not in text and "report.html" in text


def test_the_way_back_can_be_pasted():
    assert "editkit undo 'build/a demo' -o base" in shown(tables.removal(outcome(evidence())))


def test_ranked_heads_come_in_order_with_their_numbers():
    found = evidence().localization
    lines = shown(tables.localization(found, limit=6)).splitlines()
    ranked = [line.split() for line in lines if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[1] for row in ranked] == [str(effect.unit) for effect in found.order[:6]]
    assert ranked[0][2] == wording.points(found.order[0].effect)
    assert f"{len(found.order) - 6} more heads" in "\n".join(lines)
    assert "Not localized" in shown(tables.localization(replace(found, found=False)))


def test_inspect_joins_equal_layers_and_gives_reasons():
    def site(layer: int, units: int) -> Site:
        module = f"model.layers.{layer}.self_attn.o_proj"
        return Site("head", layer, module + ".weight", module, (64, 16 * units), 1, units, 16, 2)

    sites = (site(0, 8), site(1, 8), site(3, 8), site(4, 4))
    architecture = Architecture("llama", 7, sites, (Unreachable((2,), "linear attention"), Unreachable((5, 6), "ssm")))
    found = Inspection("tiny", None, architecture, {"F32": 1000}, 1, None, (Format("lora", False, "packed weights"),))
    text = shown(tables.inspection(found))
    rows = [line.split("  ")[0].strip() for line in text.splitlines() if "self_attn" in line]
    assert rows == ["0 to 1", "3", "4"]
    assert "28 heads in 4 of 7 layers" in text
    assert "layers 2: linear attention; layers 5, 6: ssm" in text and "no: packed weights" in text


def test_scores_of_one_model_are_shown_with_their_intervals():
    found = Standings("org/model", (Standing("swear", 150, 0.0, Interval(0.99, 0.95, 1.0), 0.01),))
    line = next(line for line in shown(score_tables.standings(found)).splitlines() if "swear" in line)
    assert line.split() == ["swear", "150", "99.0", "95.0", "to", "100.0", "0.0", "1.0"]


def test_universal_heads_are_named_with_what_they_break():
    heads = [Head(layer, index) for layer in range(2) for index in range(4)]
    drops = np.array([[0.5, 0.25], [0.3, 0.2]])
    found = Universals(
        np.array([5, 2]),
        np.array([0.001, 0.01]),
        drops,
        ("rhyme", "code"),
        ({"repeats": 1.0}, {}),
        np.array([7]),
        drops[:1],
        13.0,
    )
    wide, narrow = shown(tables.universal(found, heads), 100), shown(tables.universal(found, heads), 40)
    rows = [line.split() for line in wide.splitlines() if line.split()[:1] in (["L1H1"], ["L0H2"])]
    assert rows == [["L1H1", "0.001", "repeats", "−0.50", "−0.25"], ["L0H2", "0.010", "–", "−0.30", "−0.20"]]
    assert "L1H3" in wide and "rhyme" not in narrow and "L1H1" in narrow
    assert json.loads(json.dumps(found.to_dict(heads)))["universal"][0]["drops"] == {"rhyme": 0.5, "code": 0.25}
    none = replace(found, columns=np.zeros(0, int), p=np.zeros(0), drops=np.zeros((0, 2)), failing=())
    assert "No universal heads" in shown(tables.universal(none, heads))


@pytest.mark.parametrize("width", [40, 120])
def test_both_answers_are_shown_and_what_differs_is_marked(width):
    text = shown(
        score_tables.comparison("Say it.", "a damn cat", "a cat"), width, force_terminal=True, color_system="standard"
    )
    assert "\x1b[1;4;31m" in text and "damn" in text
    assert ("before" in text) and ("after" in text) and "Say it." in text


def test_no_color_and_pipes_get_plain_text(monkeypatch):
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    program = "from tests.made_evidence import evidence; from editkit.cli import score_tables, streams; "
    program += "streams.show(score_tables.evaluation(evidence().report))"
    for encoding, minus in (("utf-8", "−97.3"), ("ascii", "-97.3")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            capture_output=True,
            env={"PYTHONIOENCODING": encoding},
            check=True,
        )
        text = done.stdout.decode(encoding)
        assert "\x1b" not in text and minus in text and "collapse" in text
        assert done.stderr == b""


def test_away_from_a_terminal_a_stage_is_one_line():
    stream = io.StringIO()
    work = on_stderr(Console(file=stream, width=100, force_terminal=False), shortest=0.0)
    with work("Finding heads", 200) as advance:
        for _ in range(100):
            advance(2)
    with work("Selectivity", None):
        pass
    lines = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == ["Finding heads", "Selectivity"] and "200" in lines[0]
    with on_stderr(Console(file=stream, width=100, force_terminal=False), shortest=60.0)("Known", 1):
        pass
    assert stream.getvalue().splitlines() == lines


def test_away_from_a_terminal_a_long_stage_tells_now_and_then() -> None:
    """Else a run in a log file says nothing for an hour, and is taken for dead."""
    stream = io.StringIO()
    work = on_stderr(Console(file=stream, width=100, force_terminal=False), shortest=60.0, every=0.05)
    with work("Outer", 3), work("Finding heads", 2000) as advance:
        advance(1000)
        time.sleep(0.3)
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 2 and all(line.startswith("Finding heads ... 1,000 of 2,000, 0.") for line in lines)
    last = re.fullmatch(r".*, (0\.\d) s; ([\d,]+)/s, (0\.\d) s left", lines[-1])
    assert last and last[1] == last[3], "half of it is done: as long as so far"
    time.sleep(0.1)
    assert stream.getvalue().splitlines() == lines, "a stage that ended is silent"


def test_of_stages_within_each_other_only_the_inner_one_tells_whoever_opened_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else "Loading the model" and "Starting workers" take turns, line by line."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    opened = [on_stderr(shortest=60.0, every=0.1) for _ in range(2)]
    with opened[0]("Outer", None), opened[1]("Inner", None):
        time.sleep(0.3)
    told = sys.stderr.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "Inner ..." in told and "Outer ..." not in told


def test_on_a_terminal_stages_nest_and_survive_an_error():
    stream = io.StringIO()
    work = on_stderr(Console(file=stream, width=100, force_terminal=True))
    with work("Outer", 3) as advance:
        advance(1)
        with work("Inner", None) as inner:
            inner(5)
    with pytest.raises(KeyError), work("Broken", 10) as advance:
        advance(1)
        raise KeyError("x")
    with work("Next", 1) as advance:
        advance(1)
    text = stream.getvalue()
    for title in ("Outer", "Inner", "Broken", "Next"):
        assert title in text
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") > 0, "the cursor comes back"


def test_the_terminal_needs_no_heavy_library():
    program = "import sys, editkit.cli.tables; "
    program += "print([name for name in ('torch', 'transformers', 'matplotlib', 'sklearn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
