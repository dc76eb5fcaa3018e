"""Every link between the pages leads to a file and a heading that are there; the site has every page, in the README's
order, and reads it as a forge does; the notebook runs.

If one fails: a reader follows a link into nothing, misses a page, sees a list run together, or runs a notebook that
stops in the middle.
"""

from __future__ import annotations

import ast
import json
import re
from html import unescape
from pathlib import Path
from runpy import run_path
from typing import Any
from urllib.parse import unquote

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.conftest import Removed

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
COMMONMARK = MarkdownIt().enable("table")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "docs/*.md", "docs/*.ipynb", "cards/**/*.md", "benchmarks/results/*.md")
    for path in ROOT.glob(pattern)
)


def _text(path: Path) -> str:
    """Markdown; of a notebook its Markdown cells, of a model card all below its metadata."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        texts = ("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        return "\n\n".join(texts)
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)


def _tokens(path: Path) -> list[Token]:
    """Blocks, and what is inside of them."""
    blocks = COMMONMARK.parse(_text(path))
    return [token for block in blocks for token in (block, *(block.children or ()))]


def _targets(path: Path) -> list[str]:
    """Where links and pictures of a page lead."""
    found = (token.attrGet({"link_open": "href", "image": "src"}.get(token.type, "")) for token in _tokens(path))
    return [unquote(str(target)) for target in found if target is not None]


def _anchors(path: Path) -> set[str]:
    """What can stand behind ``#``, as forges and the site both make it of headings."""
    tokens = _tokens(path)
    titles = (
        "".join(part.content for part in content.children or () if part.type in {"text", "code_inline"})
        for heading, content in zip(tokens, tokens[1:], strict=False)
        if heading.type == "heading_open"
    )
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.strip().lower())) for title in titles}


def _is_dead(page: Path, target: str) -> bool:
    """Whether a relative link leads to no file of the repository, or to no heading of one."""
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.is_relative_to(ROOT) or not path.is_file():
        return True
    return bool(anchor) and anchor not in _anchors(path)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    relative = [target for target in _targets(ROOT / page) if not re.match(r"[a-z]+:", target)]
    assert not [target for target in relative if _is_dead(ROOT / page, target)]


def test_a_dead_link_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A heading: of `two` words\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    lines = [
        "![](a.png)",
        "[](other.md)",
        "[](other.md#a-heading-of-two-words)",
        "[](#here)",
        "[](other.md#no-heading)",
    ]
    page.write_text("# Here\n\n" + " ".join(lines) + "\n\n`[](code.md)` [](../out.md)\n\n```\n[](block.md)\n```\n")
    dead = [target for target in _targets(page) if _is_dead(page, target)]
    assert dead == ["a.png", "other.md#no-heading", "../out.md"]


def _blocks(html: str) -> list[tuple[str, str]]:
    """Each item, cell and heading with its kind, up to what is nested in it: what a reader sees as structure."""
    starts = re.findall(r"<(li|t[dh]|h\d|pre)\b[^>]*>(.*?)(?=</?(?:li|[uo]l|t[dh]|h\d|pre|table)\b)", html, re.DOTALL)
    return [(kind, re.sub(r"<[^>]*>|\s", "", unescape(text))) for kind, text in starts]


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
def test_the_site_reads_a_page_as_a_forge_does(page: str) -> None:
    """Lists, tables and code are the same for CommonMark and for the site: a blank line before a list, and four spaces
    before what is inside of a numbered item."""
    text = _text(ROOT / page)
    read = run_path(str(ROOT / "docs" / "site.py"))["on_page_markdown"](text)
    site = markdown.markdown(read, extensions=SITE["markdown_extensions"][:3])
    assert _blocks(site) == _blocks(COMMONMARK.render(text))


def _listed(nav: Any) -> list[str]:
    """The pages of the site in the order of its navigation."""
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in _listed(child)]


def test_the_site_has_every_page() -> None:
    pages = [page.replace(".ipynb", ".md") for page in PAGES]
    listed = [page for page in _listed(SITE["nav"]) if page.endswith(".md")]
    assert sorted(listed) == sorted(pages), "`nav` in mkdocs.yml lists every page once"


def test_the_site_and_the_readme_have_one_order() -> None:
    table = (ROOT / "README.md").read_text("utf-8").split("## Documents\n\n")[1].split("\n\n")[0]
    order = re.findall(r"\]\((docs/[^)]+)\)", table)
    listed = [page.replace("notebook.md", "notebook.ipynb") for page in _listed(SITE["nav"])]
    assert [page for page in listed if page.startswith("docs/")] == order


def _run(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of its last line, if that is an expression, is shown."""
    *before, last = ast.parse(cell).body
    shown = isinstance(last, ast.Expr)
    exec(compile(ast.Module(before if shown else [*before, last], []), "docs/notebook.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "docs/notebook.ipynb", "eval"), names) if shown else None


@pytest.mark.commit
@pytest.mark.usefixtures("undrawn")
def test_the_notebook_runs(
    removed: Removed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cell by cell, most of it measured already. It finds the planted heads; what they say is gone from the weights."""
    removed("quick")
    monkeypatch.setenv("EDITKIT_CACHE", str(removed.cache))
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    shown = [_run("".join(cell["source"]), names) for cell in cells]

    assert {str(head) for head in names["heads"]} == {"L1H3", "L2H17", "L3H8", "L4H21"}
    assert [value._repr_png_()[:4] for value in shown if hasattr(value, "_repr_png_")] == [b"\x89PNG"]
    [swearing, rhyme] = zip(shown[0], names["without"], strict=True)
    assert swearing[0] != swearing[1] and rhyme[0] == rhyme[1] == "boat"
    assert names["result"].report.verdict.met
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in said] == ["checkpoint", "base-again"]


def test_the_notebook_holds_no_outputs() -> None:
    """They would be somebody's, and old: the site runs it."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
