"""Findings as a page: one section per model, each rewritten by itself.

PAGE.write_text(with_section(PAGE.read_text(), "Organism", section(bench, findings)))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.unlearning.attacked import COMMON, LEFT_OUT, Finding
from benchmarks.unlearning.bench import REACHED, Bench
from editkit.evidence.attacks import Attack, steps_to_half
from editkit.evidence.intervals import Interval
from editkit.evidence.ladder import standing
from editkit.render.wording import percent, points

HEAD = """# Peers under the same attacks

`python -m benchmarks.unlearning --only organism` writes this page, `--only real` its part on a real model. Plain
removal beside four ways to unlearn (`benchmarks/unlearning/`: a file each, with what its paper says and what is ours),
all given the same answers of `locate` examples. Each has the setting, of a small grid, that costs retained tasks least
on `choose` examples among those that leave at most {reached} % of the target. All numbers below are of `report`
examples, scores in percent, changes in points, seconds of one CPU core, of plain removal without the search for its
units. One seed. *repselect* follows the abstract of its paper, the rest of which was not at hand: its column says
nothing of the paper's own settings.
"""


def with_section(page: str, title: str, lines: Sequence[str]) -> str:
    """The page with the section of this title new, the others as they were."""
    found = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    others = [part.strip("\n") for part in found if not part.startswith(f"## {title}\n")]
    sections = sorted([*others, "\n".join([f"## {title}", "", *lines]).strip("\n")])
    return "\n\n".join([HEAD.format(reached=f"{100 * REACHED:g}").strip("\n"), *sections]) + "\n"


def section(bench: Bench, findings: Sequence[Finding], remarks: Sequence[str]) -> list[str]:
    """Tables and what they say, from the first finding, plain removal, and its peers."""
    lines = [*remarks, "", *_removals(findings), "", *_recovery(bench, findings), ""]
    lines += [*_audits(bench, findings), "", *_nats(findings), ""]
    for own in (finding for finding in findings if finding.peer.edit):
        lines += _said(bench, own, [finding for finding in findings if not finding.peer.edit])
    missed = [name_of(finding) for finding in findings if not finding.peer.within]
    if missed:
        why = "no setting of the grid took the target far enough within the damage budget"
        lines += [f"Not compared here, as {why}: {', '.join(missed)}.", ""]
    not_made = [name for name in COMMON if name not in bench.audits]
    if not_made:
        lines += [f"Not made here, for the time they take: {', '.join(not_made)}.", ""]
    left_out = "; ".join(f"*{name}*: {why}" for name, why in LEFT_OUT.items())
    return [*lines, f"Left out, as they do not apply to an unlearned model: {left_out}."]


def _removals(findings: Sequence[Finding]) -> Iterator[str]:
    yield "| method | setting | target | collapsed | worst retained [95 %] | mean retained [95 %] | made in | tuned in | bytes changed |"  # noqa: E501
    yield "|---|---|--:|--:|---|--:|--:|--:|--:|"
    for finding in findings:
        peer, target = finding.peer, finding.of("target")[0]
        scores = f"{percent(target.before.mean)} → {percent(target.after.mean)}"
        tuned = "–" if peer.tuning is None else f"{peer.tuning:.0f} s"
        yield (
            f"| {name_of(finding)} | {_setting(finding)} | {scores} | "
            f"{percent(target.collapse_after)} | {_change(finding.worst.delta)} ({finding.worst.task}) | "
            f"{_change(finding.mean)} | {peer.seconds:.1f} s | {tuned} | {100 * peer.changed:.2f} % |"
        )


def _recovery(bench: Bench, findings: Sequence[Finding]) -> Iterator[str]:
    """The attacker's best rate; beside it the control's steps, where there is one."""
    sizes = sorted({row.lessons for finding in findings for row in finding.attacks.of("relearning")})
    last, whose = max(bench.budget.steps), "a model that never had it" if bench.never_had else "each answer another's"
    yield "Steps of fine-tuning until half of it is back, beside " + whose + ":"
    yield ""
    yield "| method | " + " | ".join(f"{size} answers | beside" for size in sizes) + " | rung |"
    yield "|---|" + "--:|--:|" * len(sizes) + "---|"
    for finding in findings:
        cells = []
        for size in sizes:
            rows = course(finding, size)
            cells += [_steps(steps_to_half(rows), last), _steps(steps_to_half(rows, control=True), last)]
        yield f"| {name_of(finding)} | {' | '.join(cells)} | {standing(finding.attacks).sentence} |"


def _audits(bench: Bench, findings: Sequence[Finding]) -> Iterator[str]:
    names = [name for name in bench.audits if any(finding.attacks.of(name) for finding in findings)]
    yield "R of the dose that brings most back, with its 95 % interval, and what the control scores under it:"
    yield ""
    yield "| audit | " + " | ".join(name_of(finding) for finding in findings) + " |"
    yield "|---|" + "---|" * len(findings)
    for name in names:
        yield f"| {name} | " + " | ".join(_cell(most(finding, name)) for finding in findings) + " |"


def _nats(findings: Sequence[Finding]) -> Iterator[str]:
    yield "Nats of the right answers' tokens 1 / 2 / 3 / later:"
    yield ""
    yield "| model | " + " | ".join(row.task for row in findings[0].attacks.nats) + " |"
    yield "|---|" + "---|" * len(findings[0].attacks.nats)
    arms = {"base": (findings[0], "base"), **{name_of(each): (each, "edited") for each in findings}}
    if findings[0].attacks.never_had:
        arms["never had it"] = (findings[-1], findings[-1].attacks.never_had or "")
    for name, (finding, arm) in arms.items():
        cells = [_tokens(row.arms[arm]) for row in finding.attacks.nats]
        yield f"| {name} | " + " | ".join(cells) + " |"


@dataclass(frozen=True)
class _Measure:
    """One way to compare.

    Args:
        value: smaller is better.
        shown: as people read it.
        apart: so much or less between two is none: their intervals are far wider.
    """

    name: str
    value: Callable[[Finding], float | None]
    shown: Callable[[float], str]
    apart: float = 0.0


def _measures(bench: Bench, findings: Sequence[Finding]) -> Iterator[_Measure]:
    yield _Measure(
        "worst loss of a retained task",
        lambda each: -each.worst.delta.mean,
        lambda loss: f"{points(-loss)} points",
        apart=0.02,
    )
    for name in [name for name in bench.audits if name not in ("relearning", "token-nats")]:
        yield _Measure(
            f"what *{name}* brings back",
            lambda each, name=name: _share(each, name),
            lambda share: f"{percent(share)} %",
            apart=0.05,
        )
    for size in sorted({row.lessons for finding in findings for row in finding.attacks.of("relearning")}):
        yield _Measure(
            f"steps to half of it on {size} answers",
            lambda each, size=size: -(steps_to_half(course(each, size)) or float("inf")),
            lambda steps: "none within the budget" if steps == -float("inf") else f"{-steps:.1f}",
            apart=0.5,
        )
    yield _Measure("bytes changed", lambda each: each.peer.changed, lambda share: f"{100 * share:.2f} %")


def _said(bench: Bench, own: Finding, others: Sequence[Finding]) -> Iterator[str]:
    """Where plain removal is beaten by a peer within the damage budget, and where it beats them all."""
    peers = [finding for finding in others if finding.peer.within]
    loses, wins, ties = [], [], []
    for measure in _measures(bench, [own, *peers]):
        mine = measure.value(own)
        theirs = [(value, peer) for peer in peers if (value := measure.value(peer)) is not None]
        if mine is None or not theirs:
            continue
        best, who = min(theirs, key=lambda pair: pair[0])
        said = f"{measure.name}: {measure.shown(mine)}, best peer {measure.shown(best)} ({name_of(who)})"
        alike = best == mine or abs(best - mine) <= measure.apart
        (ties if alike else loses if best < mine else wins).append(said)
    for title, lines in (("Where it loses", loses), ("Where it wins", wins), ("As good as the best peer", ties)):
        yield f"**{title}.** {name_of(own)[0].upper()}{name_of(own)[1:]}: {'; '.join(lines) or 'nowhere'}."
        yield ""


def name_of(finding: Finding) -> str:
    return f"plain removal ({finding.peer.name})" if finding.peer.edit else finding.peer.name


def _setting(finding: Finding) -> str:
    setting = finding.peer.setting
    if setting is None:
        return "–"
    missed = "" if finding.peer.within else ", over the damage budget"
    missed = missed if finding.peer.reached else ", target not reached"
    return f"own {setting.own:g}, rate {setting.rate:g}, {setting.steps} steps{missed}"


def course(finding: Finding, size: int) -> list[Attack]:
    return [row for row in finding.attacks.of("relearning") if row.lessons == size]


def most(finding: Finding, audit: str) -> Attack | None:
    rows = [row for row in finding.attacks.of(audit) if row.recovered is not None]
    return max(rows, key=lambda row: (row.recovered.share if row.recovered else 0.0, -row.steps), default=None)


def _share(finding: Finding, audit: str) -> float | None:
    """From 0 to 1: beyond, little was gone that could come back, or chance has the word."""
    row = most(finding, audit)
    return None if row is None or row.recovered is None else min(1.0, max(0.0, row.recovered.share))


def _cell(row: Attack | None) -> str:
    if row is None or row.recovered is None or row.control is None:
        return "–"
    back = row.recovered
    return f"{back.share:.2f} [{back.low:.2f}, {back.high:.2f}], {percent(row.control.score)}; {row.dose}"


def _steps(steps: float | None, last: int) -> str:
    return f"more than {last}" if steps is None else f"{steps:.1f}"


def _tokens(nats: Sequence[float | None]) -> str:
    return " / ".join("–" if each is None else f"{each:.1f}" for each in nats)


def _change(interval: Interval) -> str:
    return f"{points(interval.mean)} [{points(interval.low)}, {points(interval.high)}]"
