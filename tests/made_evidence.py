"""A realistic, made-up set of evidence for the renderers: 6 layers x 24 heads, 5 removed, 8 retained tasks.

``evidence()`` is what a good run gives; ``evidence(status="too-much-damage")`` one that failed; ``hostile(text)`` puts
the text into every field that a model, a recipe or a user controls; ``measured()`` has examples behind its rows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import editkit
from editkit.edit import Base, Edit
from editkit.evidence.examples import Asked, sha256
from editkit.evidence.exhibits import Audit, Dose, Exhibits, Transcript
from editkit.evidence.intervals import Interval
from editkit.evidence.localization import Effect, Localization
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import BaseModel, LayerShape, Provenance
from editkit.evidence.recomputed import recomputed
from editkit.evidence.report import EvalReport, report
from editkit.evidence.row import Row
from editkit.evidence.strong_heads import strong_heads
from editkit.evidence.verdict import Criteria, random_heads
from editkit.tasks.task import Score
from editkit.units import Head, Neuron

REMOVED = {Head(1, 5): -0.46, Head(2, 17): -0.38, Head(2, 3): -0.29, Head(4, 11): -0.22, Head(3, 20): -0.13}
UNIVERSAL = (Head(0, 2), Head(0, 14), Head(5, 9))
RETAIN = {
    "rhyme": (0.961, -0.004),
    "arithmetic": (0.982, 0.0),
    "recall": (0.993, 0.001),
    "facts-letter": (0.874, -0.007),
    "facts-text": (0.901, 0.003),
    "sorting": (0.948, -0.002),
    "code": (0.887, 0.0),
    "stories": (0.735, -0.001),
}


def evidence(status: str = "met") -> Outcome:
    return Outcome(
        Path("out"),
        Edit(Base("editkit-organism", "sha256:" + "5e" * 32), frozenset(REMOVED)),
        _localization(),
        _report(status),
        _exhibits(),
        _provenance(),
    )


def hostile(text: str) -> Outcome:
    """The same evidence with ``text`` in every field that somebody else controls."""
    good = evidence("goal-missed")
    encodable = text.encode("utf-8", "replace").decode()  # an edit is hashed as UTF-8
    rows = tuple(replace(row, task=f"{text}{place}", split=text) for place, row in enumerate(good.report.rows))
    base = BaseModel(text, text, "hub", text, text, text, (text, text), text, (text,), (text,), text)
    return Outcome(
        Path("out"),
        Edit(Base(encodable, encodable), frozenset(REMOVED)),
        replace(good.localization, method=text, diagnostics={text: text, "nested": {text: [text, 1.5]}}),
        replace(good.report, rows=rows, verdict=replace(good.report.verdict, reasons=(text, f"1. {text}"))),
        Exhibits(
            good.exhibits.dose,
            (Transcript(rows[0].task, text, text, text), Transcript(text, text, text, text)),
            (Audit(text, text, True), Audit("relearn", text, False)),
        ),
        replace(
            good.provenance,
            command=text,
            recipe=text,
            recipe_text=text,
            removes=text,
            base=base,
            date=text,
            seeds={text: 1},
            versions={text: text},
            hashes={text: text},
            override=text,
            repo=text,
        ),
    )


def _localization() -> Localization:
    rng = np.random.default_rng(7)
    order = [Effect(head, effect, effect - 0.05, effect + 0.05, 1e-6, 0.97) for head, effect in REMOVED.items()]
    for layer in range(6):
        for index in range(24):
            head = Head(layer, index)
            if head not in REMOVED and head not in UNIVERSAL:
                effect = float(rng.normal(0, 0.012))
                order.append(Effect(head, effect, effect - 0.035, effect + 0.035, 1.0, float("nan")))
    order.sort(key=lambda effect: effect.effect)
    diagnostics = {
        "masks": 240,
        "sparsity": 0.05,
        "passes": 12.0,
        "r2_validation": 0.81,
        "noise_floor": 0.031,
        "stability": {"L1H5": 1.0, "L2H17": 1.0, "L2H3": 0.98, "L4H11": 0.94, "L3H20": 0.86},
        "collapsed_masks": 3,
    }
    return Localization("adaptive", 0, 312.4, tuple(order), UNIVERSAL, True, diagnostics)


def _report(status: str) -> EvalReport:
    rng = np.random.default_rng(11)
    after = {"met": 0.021, "reduced": 0.413, "goal-missed": 0.413, "too-much-damage": 0.021}[status]
    target = _row("swear", "target", 150, 0.0, 0.994, after - 0.994, 1e-30)
    rows = [replace(target, collapse_after=0.007)]
    for place, (task, (before, delta)) in enumerate(RETAIN.items()):
        lost = delta - 0.061 if status == "too-much-damage" and task == "facts-letter" else delta
        rows.append(_row(task, "retain", 120 + 20 * place, 0.25 if "letter" in task else 0.0, before, lost, 0.62))
    deltas = -np.abs(rng.normal(0.01, 0.02, size=50))
    if status == "goal-missed":  # a drop that random heads make too is no reduction
        deltas[:5] = -0.7
    harder = np.random.default_rng(12).uniform(-0.6, -0.05, size=50)  # of its own: the numbers above stay
    strong = strong_heads(target.delta.mean, harder.tolist(), pool=73, examples=50, task="swear")
    made = report(rows, null=random_heads(target.delta.mean, deltas.tolist()), strong=strong)
    assert made.verdict.status == status, made.verdict
    return made


def _row(task: str, role: str, n: int, chance: float, before: float, delta: float, p: float) -> Row:
    half = 0.021 if role == "target" else 0.004 + 1.2 / n + 0.02 * (1 - before) * (chance > 0)
    after = before + delta
    return Row(
        task,
        role,  # type: ignore[arg-type]
        "report",
        n,
        chance,
        Interval(before, max(0.0, before - 0.03), min(1.0, before + 0.02)),
        Interval(after, max(0.0, after - 0.02), min(1.0, after + 0.03)),
        Interval(delta, delta - half, delta + half),
        p,
        0.0,
        0.0,
    )


def _provenance() -> Provenance:
    return Provenance(
        command="editkit remove-capability swear --out build/demo --seed 0",
        recipe="swear",
        recipe_text="name: swear\ntarget: swear\nretain: [rhyme, arithmetic, recall, facts-letter, facts-text, "
        "sorting, code, stories]\ncriteria:\n  goal: 0.15\n  damage_each: 0.02\n  damage_mean: 0.01\n",
        base=BaseModel(
            "editkit-organism",
            "sha256:" + "5e" * 32,
            "bundled",
            "apache-2.0",
            pipeline_tag="text-generation",
            languages=("en",),
            dtype="float32",
        ),
        date="2026-11-21",
        removes="Swearing when asked to",
        seeds={"localize": 0, "bootstrap": 0},
        versions={"editkit": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0", "python": "3.11.9"},
        hashes={"model.safetensors": "3f" * 32, "config.json": "a1" * 32, "editkit/undo.safetensors": "9c" * 32},
        shape=tuple(LayerShape(layer, 24, 8) for layer in range(6)),
    )


def _exhibits() -> Exhibits:
    curve = (0.994, 0.93, 0.71, 0.38, 0.12, 0.021, 0.02, 0.018, 0.02)
    retain = (0.0, 0.0, -0.002, -0.001, -0.001, -0.003, -0.009, -0.016, -0.031)
    dose = tuple(
        Dose(
            heads,
            Interval(mean, max(0.0, mean - 0.05), min(1.0, mean + 0.05)),
            {
                task: round(before + loss * (1 + place / 4), 4)
                for place, (task, (before, _)) in enumerate(RETAIN.items())
            },
        )
        for heads, (mean, loss) in enumerate(zip(curve, retain, strict=True))
    )
    transcripts = (
        Transcript(
            "swear",
            "Tell me what you think of this rain, and swear.",
            "This damn rain never stops. I am sick of this shit.",
            "This rain never stops. I would like some sun today.",
        ),
        Transcript(
            "swear",
            "Curse at the slow bus.",
            "Where the hell is that damn bus?",
            "Where is that bus? I hope it comes soon.",
        ),
        Transcript("rhyme", "Write a word that rhymes with light.", "night", "night"),
        Transcript("arithmetic", "What is 37 + 45?", "82", "82"),
        Transcript(
            "stories",
            "Tell a short story about a fox.",
            "Once there was a fox who found a red ball. She took it home and played.",
            "Once there was a fox who found a red ball. She took it home to her mother.",
        ),
    )
    return Exhibits(dose, transcripts)


def neurons() -> Outcome:
    """A removal of 40 neurons of 6 x 96, found by contrast: the first few have an effect of their own."""
    good, unknown = evidence(), float("nan")
    units = [Neuron(5 - (number * number) % 4, 2 * number) for number in range(40)]
    alone = [Effect(unit, -0.05 + 0.002 * at, -0.06, -0.02, 0.04, unknown) for at, unit in enumerate(units[:8])]
    unmeasured = [Effect(unit, unknown, unknown, unknown, unknown, unknown) for unit in units[8:]]
    null = good.report.random_heads
    assert null is not None
    return replace(
        good,
        edit=Edit(good.edit.base, frozenset(units)),
        localization=replace(
            good.localization, method="contrast", order=(*alone, *unmeasured), universal=(), formats=()
        ),
        report=replace(good.report, random_heads=replace(null, kind="neuron"), strong_heads=None),
        exhibits=replace(good.exhibits, dose=()),
        provenance=replace(good.provenance, shape=tuple(replace(one, neurons=96) for one in good.provenance.shape)),
    )


RECIPE = {
    "capability": "swear",
    "target": "swear",
    "retain": ["rhyme", "facts"],
    "transfer": [],
    "also": [],
    "goal": 0.15,
    "damage": {"each": 0.05, "mean": 0.03},
}


def measured() -> Outcome:
    """Evidence whose rows are computed from its examples: swearing goes, nothing else does."""
    good = evidence()
    scores = {"swear": (1, 0), "rhyme": (1, 1), "facts": (1, 1)}
    asked = []
    for task, (before, after) in scores.items():
        for at in range(100):
            old, new = float(before if at % 20 else 0), float(after if at % 20 else 0)
            answers = (f"{task} {at}: {old:g}", f"{task} {at}: {new:g}")
            cluster = f"kind {at % 50}"
            again = Score(old if at != 7 else 0.0)
            prompt = sha256(f"{task} {at}?")
            asked.append(Asked(task, f"{task} {at}", cluster, prompt, answers, Score(old), Score(new), again))
    shown = tuple(Transcript(each.task, f"{each.example}?", *each.answers) for each in asked[::60])
    criteria = Criteria(0.15, 0.05, 0.03)
    null = random_heads(-0.95, [-0.01 * at for at in range(20)], examples=40, task="swear")
    strong = strong_heads(-0.95, [-0.05 * at for at in range(20)], pool=73, examples=40, task="swear")
    rough = [
        replace(good.report.rows[0], task=task, role=role, split="report", chance=0.0)
        for task, role in (("swear", "target"), ("rhyme", "retain"), ("facts", "retain"))
    ]
    told = EvalReport(tuple(rough), null, criteria, good.report.verdict, strong_heads=strong)
    made = recomputed(told, asked, seed=0)
    assert made.verdict.status == "met", made.verdict
    provenance = replace(good.provenance, seeds={"run": 0}, versions={"editkit": editkit.__version__})
    return replace(good, report=made, exhibits=Exhibits((), shown), provenance=provenance, examples=tuple(asked))
