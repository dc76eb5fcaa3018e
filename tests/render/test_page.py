"""The page is one file that loads nothing, reads without scripts, and shows the evidence's numbers.

If one fails: the report loads something from elsewhere, cannot be read, or shows other numbers than the evidence.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console

from editkit.cli import tables
from editkit.evidence.exhibits import Audit, Exhibits
from editkit.evidence.outcome import Outcome
from editkit.evidence.provenance import BaseModel, LayerShape
from editkit.render import card, wording
from editkit.render import page as renderer
from editkit.render.diagnostics import facts
from editkit.render.head_map import head_map
from editkit.render.word_diff import differing
from tests.made_evidence import evidence, neurons

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
VOID = {"meta", "br", "img", "link", "input", "hr"}


def rendered(found: Outcome, exhibits: Exhibits | None = None) -> str:
    return renderer.render(found if exhibits is None else replace(found, exhibits=exhibits))


def as_table(found: Outcome) -> str:
    """What the terminal shows."""
    stream = io.StringIO()
    Console(file=stream, width=2000, color_system=None).print(tables.removal(found))
    return stream.getvalue()


@cache
def page(status: str = "met") -> str:
    return rendered(evidence(status))


class Tree(HTMLParser):
    """All tags with their attributes; fails on a tag that is not closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


def test_the_page_loads_nothing():
    found = evidence()
    base = BaseModel("org/model", None, "hub", "other", license_link="https://example.org/terms")
    tree = Tree(rendered(replace(found, provenance=replace(found.provenance, base=base))))
    for tag, attrs in tree.tags:
        assert tag not in ("img", "iframe", "object", "embed", "link", "base", "form", "video", "audio", "image")
        assert not {"src", "srcset", "poster", "data", "action", "background", "ping"} & set(attrs)
        if href := attrs.get("href"):
            assert href.startswith("#") or (tag == "a" and href.startswith("https://")), (tag, href)
    assert "https://example.org/terms" in tree.values("href")
    assert set(re.findall(r"url\(([^)#]*)", page())) <= {""}
    assert "@import" not in page()


def test_the_policy_allows_no_request_and_one_script():
    tree = Tree(page())
    policy = next(attrs["content"] for _, attrs in tree.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")
    scripts = re.findall(r"<script>(.*?)</script>", page(), flags=re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert not [name for _, attrs in tree.tags for name in attrs if name.startswith("on")]


def test_ids_are_unique_and_every_reference_leads_somewhere():
    tree = Tree(page())
    ids = tree.values("id")
    assert len(ids) == len(set(ids)) > 20
    inside = [href[1:] for href in tree.values("href") if href.startswith("#")] + tree.values("aria-labelledby")
    inside += re.findall(r"url\(#([^)]*)\)", page())
    assert set(inside) <= set(ids)


@pytest.mark.parametrize("status", ["met", "goal-missed", "too-much-damage"])
def test_the_numbers_of_every_row_are_on_the_page(status):
    tree, report = Tree(page(status)), evidence(status).report
    cells = [text.strip() for text in tree.text]
    for row in report.rows:
        at = max(
            place for place, text in enumerate(cells) if text == row.task and str(row.n) in cells[place : place + 6]
        )
        line = cells[at : at + 14]
        for value in (
            wording.percent(row.before.mean),
            wording.percent(row.after.mean),
            wording.points(row.delta.mean),
        ):
            assert value in line
        assert wording.span(row.delta) in line
    text = " ".join(tree.text)
    headline = f"took the score on swear, on one prompt format, from {wording.percent(report.rows[0].before.mean)} %"
    assert headline in text and ("The attempt, zeroing" in text) == (status != "met")
    assert ("Criteria met" in text) == (status == "met") and ("Criteria not met" in text) == (status != "met")
    line = wording.null_line(report)
    assert line is not None and line in text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("render", [lambda found: " ".join(Tree(rendered(found)).text), card.render, as_table])
@pytest.mark.parametrize(("reached", "means"), [(0, "strong alone do less"), (3, "strong alone can do the same")])
def test_what_strong_heads_do_is_said_with_what_it_means(reached, means, render):
    """Else a reader takes the chosen heads for special where a list by effect does as much; or for judged by it."""
    found = evidence()
    strong = found.report.strong_heads
    assert strong is not None
    found = replace(found, report=replace(found.report, strong_heads=replace(strong, reached=reached)))
    text = " ".join(render(found).split())
    said = (
        f"50 sets of as many strong heads, drawn from 73 by their own effect alone, whatever their layers, change the "
        f"target by {wording.points(sum(strong.deltas) / 50)} points on average; {reached or 'none'} of them reached "
        f"{wording.points(strong.delta)}, the change by the chosen set on the same 50 examples: heads that are "
        f"{means}. This is reported, and no part of the verdict."
    )
    assert said in text
    assert "strong heads" not in render(replace(found, report=replace(found.report, strong_heads=None)))


def test_every_head_is_on_the_map_with_its_exact_values():
    found = evidence()
    labels = [attrs.get("aria-label") for _, attrs in Tree(page()).tags if "cell" in (attrs.get("class") or "").split()]
    labels = [label for label in labels if label]
    assert len(labels) == 144
    for layer in head_map(found.edit, found.localization, found.provenance):
        for cell in layer.cells:
            assert cell.label in labels
    removed = [label for label in labels if ", removed" in label]
    assert {label.split(",")[0] for label in removed} == {str(head) for head in found.edit.heads}
    assert "effect −46.0 points; 95 % interval −51.0 to −41.0" in next(text for text in removed if "L1H5" in text)
    assert len([label for label in labels if "universal" in label]) == 3


def test_marked_heads_are_reached_by_tab_even_without_the_script():
    tabbed = [attrs for _, attrs in Tree(page()).tags if attrs.get("tabindex") == "0" and attrs.get("role") == "img"]
    assert len(tabbed) == 5 + 3


@pytest.mark.usefixtures("undrawn")
def test_groups_are_marked_only_where_heads_share_keys():
    found = evidence()
    assert page().count('class="kv-name') == 8
    alone = replace(found.provenance, shape=tuple(LayerShape(layer, 24, 24) for layer in range(6)))
    assert 'class="kv-name' not in rendered(replace(found, provenance=alone))
    unknown = replace(found.provenance, shape=tuple(LayerShape(layer, 24) for layer in range(6)))
    assert 'class="kv-name' not in rendered(replace(found, provenance=unknown))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("shape", [(), (LayerShape(1, 6, 2), LayerShape(4, 24, 8)), (LayerShape(0, 1),)])
def test_any_shape_makes_a_page(shape):
    found = evidence()
    Tree(rendered(replace(found, provenance=replace(found.provenance, shape=shape))))


def test_neurons_are_counted_by_layer_instead_of_mapped():
    html = rendered(neurons())
    Tree(html)
    assert "Neurons removed, layer by layer: L4 20, L5 20." in html and 'aria-label="Head map' not in html
    assert "Against random neurons" in html and "The 40 first neurons as a table" in html


def test_a_page_without_exhibits_says_what_is_missing():
    found = evidence()
    bare = replace(found, report=replace(found.report, random_heads=None, rows=(), verdict=found.report.verdict))
    text = " ".join(Tree(rendered(bare, Exhibits())).text)
    for said in ("No dose curve", "Random heads were not measured", "No transcripts"):
        assert said in text


def test_answers_of_the_removed_capability_are_covered_and_the_others_are_not():
    covered = re.findall(r'<details class="covered">(.*?)</details>', page(), flags=re.DOTALL)
    assert len(covered) == 1 and "shit" in covered[0]
    outside = page().replace(covered[0], "")
    assert "shit" not in outside and "What is 37 + 45?" in outside
    assert not re.search(r"<details[^>]* open", page())


@pytest.mark.usefixtures("undrawn")
def test_audits_are_shown_with_their_verdict():
    shown = rendered(evidence(), Exhibits(audits=(Audit("relearn", "50 steps bring back 12 points.", False),)))
    assert "did not hold: 50 steps" in shown and "Relearning: whether" not in shown


def test_a_page_without_a_model_says_so():
    found = evidence("goal-missed")
    shown = rendered(replace(found, provenance=replace(found.provenance, format="evidence")))
    assert "No model was written." in shown and ">Tried<" in shown
    text = " ".join(Tree(shown).text + Tree(shown).values("aria-label")).lower()
    assert not re.search(r"(?<!to be )(?<!not )removed", text)
    tabbed = [attrs for _, attrs in Tree(shown).tags if "tried" in (attrs.get("class") or "").split()]
    assert len(tabbed) == 5 + 1, "the heads and the legend"


@pytest.mark.usefixtures("undrawn")
def test_an_override_is_on_the_page():
    found = evidence("goal-missed")
    shown = rendered(replace(found, provenance=replace(found.provenance, override="swear kept 41 %")))
    assert "Published although its verdict was not met" in shown and "swear kept 41 %" in shown
    assert "Published although" not in rendered(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(theme):
    """WCAG AA: 4.5 to 1 for text on its ground, in both themes."""
    style = re.search(r"<style>(.*?)</style>", page(), flags=re.DOTALL)
    assert style is not None
    blocks = re.findall(r":root \{(.*?)\}", style[1], flags=re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})\b", blocks[0 if theme == "light" else 1]))
    assert len(colours) > 15
    for ink in ("ink", "soft", "accent", "rise", "good", "warn", "bad"):
        for ground in ("paper", "ground"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    assert contrast(colours["met"], colours["met-ground"]) >= 4.5
    assert contrast(colours["unmet"], colours["unmet-ground"]) >= 4.5
    for ground in ("met-ground", "unmet-ground", "mark", "mark-new"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5, ground


def contrast(first: str, second: str) -> float:
    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("before", "after", "marked"),
    [
        ("This damn rain.", "This rain.", ("damn ", "")),
        ("same", "same", ("", "")),
        ("", "new", ("", "new")),
        ("a b c", "x y z", ("a b c", "x y z")),
        ("word " * 700, "other", ("", "")),
    ],
)
def test_differing_words_are_marked_and_no_text_is_lost(before, after, marked):
    pieces = differing(before, after)
    assert tuple("".join(text for text, _ in side) for side in pieces) == (before, after)
    found = tuple("".join(text for text, changed in side if changed).strip() for side in pieces)
    assert found == tuple(text.strip() for text in marked)


def test_diagnostics_of_any_form_become_lines():
    made = dict(
        facts({"masks": 240, "mine": {"passes": 12.5, "ok": True}, "all": list(range(20)), "nan": float("nan")})
    )
    assert made == {"masks": "240", "mine: passes": "12.5", "mine: ok": "yes", "nan": "unknown"} | {
        "all": "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (20 in all)"
    }
    assert dict(facts({"prior": True, "skipped": None, "none": [], "coefficients": {"L1H5": 0.98}})) == {
        "Guided by gradients": "yes",
        "Fit: coefficient of L1H5": "0.98",
    }
    assert facts({str(place): place for place in range(100)})[-1] == ("…", "20 more in localization.json")


def run_browser(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: the page was checked as text only")
    quiet = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    quiet += "--disable-component-update --disable-sync --enable-logging=stderr --v=0"
    command = [CHROMIUM, *quiet.split(), f"--user-data-dir={path.parent / 'profile'}", *options, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"Chromium does not run here (exit {done.returncode}): the page was checked as text only")
    return done


def browse(path: Path) -> tuple[str, str]:
    """The page as Chromium holds it after running it, and what went to its console."""
    done = run_browser(path, "--dump-dom")
    assert "</html>" in done.stdout
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


WALK = """
const seen = [];
const here = () => document.activeElement.getAttribute("aria-label").split(/[,;]/)[0];
document.querySelector(".cell.removed").focus(); seen.push(here());
for (const key of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "Home", "ArrowUp", "ArrowLeft", "End"]) {
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})); seen.push(here());
}
document.title = seen.join(" ");
"""
ATTACK = '<script>document.body.className = "owned"</script><img src="https://evil.example/x.png">'


def test_a_real_browser_runs_it_walks_the_map_and_blocks_what_was_smuggled_in(tmp_path):
    """The policy itself, which is told of the walk alone: no other script runs, nothing is fetched, all else is quiet.

    The page's own script left one way into the map, and arrow keys walk it.
    """
    known = base64.b64encode(hashlib.sha256(WALK.encode()).digest()).decode()
    text = page().replace("script-src ", f"script-src 'sha256-{known}' ", 1)
    assert text != page()
    text = text.replace("</main>", f"{ATTACK}</main>").replace("</body>", f"<script>{WALK}</script></body>")
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    dom, said = browse(path)
    assert dom.count('tabindex="-1"') == 143
    assert "<title>L1H5 L1H6 L2H6 L3H6 L3H5 L3H0 L2H0 L2H0 L2H23</title>" in dom
    assert 'class="owned"' not in dom
    blocked = [line for line in said.splitlines() if "script-src" in line or "evil.example" in line]
    assert len(blocked) == 2 and blocked == said.splitlines()


@pytest.mark.commit
def test_a_real_browser_shows_it_without_scripts(tmp_path):
    path, picture = tmp_path / "page.html", tmp_path / "page.png"
    quiet = re.sub(r"script-src '[^']*'", "script-src 'none'", page())
    assert quiet != page()
    path.write_text(quiet, encoding="utf-8")
    run_browser(path, f"--screenshot={picture}", "--window-size=1200,3000")
    seen = (imread(picture)[..., :3] * 255).round().reshape(-1, 3)
    for colour in ((0x14, 0x68, 0x3F), (0xB5, 0x39, 0x1C), (0x1F, 0x6B, 0x8F)):  # verdict, removed heads, kept tasks
        assert (abs(seen - colour).max(axis=1) <= 2).sum() > 100, f"nothing is drawn in {colour}"
