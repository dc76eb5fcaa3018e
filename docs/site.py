"""What `make docs` does to a page, so that the site reads Markdown as a forge does (a hook of mkdocs)."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Markdown inside of HTML is Markdown; a pipe in the code of a table is a pipe; the notebook is a page."""
    code = r"`[^`\n]*\\\|[^`\n]*`"
    markdown = re.sub(code, lambda found: found[0].replace(r"\|", "|"), markdown)
    return markdown.replace("<details>", '<details markdown="1">').replace("notebook.ipynb)", "notebook.md)")
