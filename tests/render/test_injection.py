"""Names, prompts, outputs and recipes are data: whatever they hold, the structure of what we write stays the same.

Each hostile text is put into every field that somebody else controls. The card's, the page's and the figures'
skeletons must equal those of the same evidence with a harmless word in its place.

If one fails: a model or task with a crafted name runs a script in the report page, forges a card, or hides text in it.
"""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
import yaml
from markdown_it import MarkdownIt
from rich.console import Console

from editkit.cli import score_tables, tables
from editkit.render import card, figures, page
from editkit.render.inert import clean, code, fence, prose, web_address
from tests.made_evidence import hostile

CORPUS = {
    "script": "<script>alert(1)</script>",
    "close-script": "</script></style></title><script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "attribute": '" onmouseover="alert(1)" x=\'',
    "comment": "--><!-- ]]> <![CDATA[ <? ?>",
    "details": "</details></summary></table></section>",
    "entity": "&lt;b&gt; &#60;script&#62; &amp;",
    "template": "{{ 7*7 }} {% include '/etc/passwd' %} ${7*7} #{7}",
    "front matter": "x\n---\nlicense: mit\ntags: [owned]\n---\n# Owned",
    "yaml": "!!python/object/apply:os.system ['true'] &a *a : - ? | > %YAML",
    "yaml words": "yes: null\n~: {a: [b]}",
    "heading": "# Owned\n\n## Owned",
    "setext": "Owned\n=====\nOwned\n-----",
    "link": "[click](javascript:alert(1)) ![x](https://evil.example/x.png) [ref]: https://evil.example",
    "bare link": "https://evil.example www.evil.example mailto:a@evil.example a@evil.example <https://evil.example>",
    "emphasis": "**bold** __bold__ *it* ~~gone~~ `code` $x^2$ $$x$$",
    "ticks": "` `` ``` ```` ~~~ ```python",
    "fence": "```\nowned\n```\n\n# Owned\n\n~~~\n",
    "pipes": "| a | b |\n|---|---|\n| c | d | \\| \\\\|",
    "list": "- owned\n- owned",
    "dash": "- owned",
    "number": "1. owned",
    "paren": "1) owned",
    "quote": "> owned",
    "indent": "    owned\n\towned",
    "footnote": "[^1] [^1]: owned",
    "bidi": "abc\u202e\u2066gnp.exe\u2069\u202d\u200f",
    "hidden": "a\u200bb\u00adc\ufeffd\u2060e\U000e0041f",
    "control": "a\x00b\x07c\x08d\x1b[31mred\x1b]8;;https://evil.example\x07e\x7f\x9b31m",
    "lines": "a\rb\u2028c\u2029d\x0be\x0cf\x85g",
    "surrogate": "a\ud800b\udfffc",
    "noncharacter": "a\ufffeb\uffffc",
    "zalgo": "a" + "\u0301" * 400,
    "math": "$\\frac{1}{0}$ \\alpha $",
    "percent": "%s %d %(x)s {0} {x}",
    "markup": "[red]x[/red] [link=https://evil.example]y[/] [/] :bomb:",
    "css": "x;} body{display:none} @import url(https://evil.example/x.css); expression(1)",
    "style attribute": 'style="background:url(https://evil.example)"',
    "path": "../../../../etc/passwd\\..\\..",
    "long": "owned " * 8000,
    "empty": "",
    "spaces": " \t \n ",
    "scripts": "日本語 العربية हिन्दी 👩‍👩‍👧 ÄÖÜ",
}

TEXTS = [name for name in CORPUS if CORPUS[name].strip()]
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PLAIN_TAGS = {"<details>", "</details>", "<summary>", "</summary>"}


@cache
def card_of(text: str) -> str:
    found = hostile(text)
    return card.render(found)


@cache
def page_of(text: str) -> str:
    """The page without figures: drawing them is most of the time. The one that shows names has its own test."""
    found = hostile(text)
    exhibits = replace(found.exhibits, dose=())
    report = replace(found.report, random_heads=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "deltas_svg", lambda report: "")
        return page.render(replace(found, report=report, exhibits=exhibits))


def halves(text: str) -> tuple[str, str]:
    """Front matter and body, cut as the Hub does: at the first line that is only dashes."""
    _, matter, body = re.split(r"^---\n", text, maxsplit=2, flags=re.MULTILINE)
    return matter, body


class Skeleton(HTMLParser):
    """Tags with the names of their attributes, and the values that load, run or lead somewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[tuple] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        names = tuple(sorted(name for name, _ in attrs))
        # Entities are decoded by now, so an attribute's value that ran out of its quotes would show as a new name.
        active = tuple(value for name, value in attrs if name in ("href", "src", "content", "class", "id", "style"))
        self.parts.append((tag, names, active))

    def handle_endtag(self, tag) -> None:
        self.parts.append(("/", tag))

    def handle_decl(self, decl) -> None:
        self.parts.append(("!", decl))

    def handle_comment(self, data) -> None:
        self.parts.append(("comment",))

    def handle_pi(self, data) -> None:
        self.parts.append(("instruction",))


def markdown_skeleton(body: str) -> list[tuple]:
    """Block and inline structure: types, and for tags and links what they are; text and code are left out."""
    parts: list[tuple] = []
    for token in MARKDOWN.parse(body):
        if token.type == "html_block":
            parts.append((token.type, tuple(re.findall(r"<[^>]*>?", token.content))))
            continue
        parts.append((token.type, token.tag, token.level))
        for child in token.children or []:
            if child.type in ("text", "softbreak", "text_special"):
                continue
            detail = child.content if child.type == "html_inline" else dict(child.attrs) if child.attrs else ""
            parts.append((child.type, child.level, str(detail) if child.type != "code_inline" else ""))
    return parts


@pytest.mark.parametrize("name", TEXTS)
def test_the_card_keeps_its_structure(name):
    matter, body = halves(card_of(CORPUS[name]))
    plain_matter, plain_body = halves(card_of("word"))
    assert markdown_skeleton(body) == markdown_skeleton(plain_body)
    data = yaml.safe_load(matter)
    allowed = set(yaml.safe_load(plain_matter)) | {"license", "license_name", "base_model", "base_model_relation"}
    assert set(data) <= allowed and data["model-index"][0].keys() == {"name", "results"}
    assert len(data["model-index"][0]["results"]) == 9
    assert "owned" not in data["tags"]


@pytest.mark.parametrize("name", CORPUS)
def test_nothing_in_the_card_is_hidden_or_active(name):
    text = card_of(CORPUS[name])
    assert hidden(text.replace("\u200d", "").replace("\u200c", "")) == set()
    for token in MARKDOWN.parse(halves(text)[1]):
        if token.type == "html_block":
            assert set(re.findall(r"<[^>]*>?", token.content)) <= PLAIN_TAGS
        for child in token.children or []:
            assert child.type != "html_inline" or child.content in PLAIN_TAGS
            assert child.type != "link_open" or str(child.attrs["href"]).startswith("https://")
            assert child.type != "image" or child.attrs["src"] in ("editkit/deltas.png", "editkit/heads.png")


def hidden(text: str) -> set[str]:
    """Characters that a reader cannot see and a machine can."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and c not in "\n\t"}


@pytest.mark.parametrize("name", CORPUS)
def test_the_page_keeps_its_structure(name):
    text = page_of(CORPUS[name])
    text.encode()  # no lone surrogates
    assert hidden(text.replace("\u200d", "").replace("\u200c", "")) == set()
    if name in TEXTS:
        assert stable(Skeleton(text).parts) == stable(Skeleton(page_of("word")).parts)


def stable(parts: list[tuple]) -> list[tuple]:
    """Figures are laid out by the width of their labels; their places and clip names may move, not their elements."""
    kept = []
    for part in parts:
        if len(part) == 3 and any(
            value and value.startswith(("#deltas-", "deltas-", "null-", "dose-")) for value in part[2]
        ):
            part = (part[0], part[1])
        kept.append(part)
    return kept


@pytest.mark.commit
def test_the_figures_draw_any_name(recwarn):
    row = hostile("word").report.rows[1]
    texts = list(CORPUS.values())
    named = replace(hostile("word").report, rows=tuple(replace(row, task=text) for text in texts))
    plain = replace(named, rows=(row,) * len(texts))
    assert figures.deltas_png(named).startswith(b"\x89PNG")
    drawn = figures.deltas_svg(named)
    assert drawn.count("<") == figures.deltas_svg(plain).count("<")
    assert "<script" not in drawn and hidden(drawn.replace("\u200d", "").replace("\u200c", "")) == set()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("name", CORPUS)
def test_the_terminal_shows_text_and_obeys_none(name):
    found, stream = hostile(CORPUS[name]), io.StringIO()
    place = Console(file=stream, width=120, force_terminal=False, color_system=None)
    place.print(tables.removal(found))
    place.print(tables.localization(found.localization))
    place.print(score_tables.comparison(CORPUS[name], CORPUS[name], "other"))
    shown = stream.getvalue()
    assert hidden(shown.replace("\u200d", "").replace("\u200c", "")) == set()
    if name == "markup":
        assert "[red]x[/red]" in shown


def test_the_harmless_evidence_has_the_parts_that_are_compared():
    kinds = {part[0] for part in markdown_skeleton(halves(card_of("word"))[1])}
    assert {"table_open", "code_inline", "image", "fence", "heading_open", "html_block"} <= kinds
    assert len(Skeleton(page_of("word")).parts) > 1500


def test_a_text_that_is_not_made_inert_would_be_caught():
    """The comparison itself can fail: the same names pasted raw change the structure."""
    raw = card_of("word").replace("remove: word", "remove: " + CORPUS["heading"])
    assert markdown_skeleton(halves(raw)[1]) != markdown_skeleton(halves(card_of("word"))[1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b|c\\d", "`a'b¦c⧵d`"),
        ("  two  spaces\n", "`two spaces`"),
        ("", "(empty)"),
        ("a\u202eb", "`a\ufffdb`"),
    ],
)
def test_code_spans(text, shown):
    assert code(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lost 6.8 points (budget: 2).", "lost 6.8 points (budget: 2)."),
        ("**b**", "&#42;&#42;b&#42;&#42;"),
        ("1. x", "1&#46; x"),
        ("- x", "&#45; x"),
        ("www.x", "www&#46;x"),
        ("http://x", "http&#58;//x"),
    ],
)
def test_prose(text, shown):
    assert prose(text) == shown


def test_a_fence_is_longer_than_any_run_inside():
    assert fence("````\nx").startswith("`````\n") and fence("x").startswith("```\n")


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "https://a b", "https://x/)(", "data:text/html,x", "//x", None]
)
def test_only_plain_web_addresses_become_links(text):
    assert web_address(text) is None
    assert web_address("https://example.org/a/LICENSE?x=1#y") is not None


def test_clean_keeps_real_writing():
    assert clean("👩‍👩‍👧 नमस्ते", lines=True) == "👩‍👩‍👧 नमस्ते"
    assert clean("a\r\nb\tc", lines=True) == "a\nb\tc"
    assert clean("x" * 10, limit=4) == "xxxx…"
