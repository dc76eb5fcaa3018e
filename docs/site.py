"""What `make docs` does to a page, so that the site reads Markdown as a forge does (a hook of mkdocs)."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Markdown inside of HTML is Markdown; the notebook is a page."""
    return markdown.replace("<details>", '<details markdown="1">').replace("notebook.ipynb)", "notebook.md)")
