"""Text that stays text: names, prompts and outputs cannot become Markdown, HTML or hidden characters.

    code("swear` <b>")      -> Inert("`swear' <b>`")
    prose("**bold** <b>")   -> Inert("&#42;&#42;bold&#42;&#42; &#60;b&#62;")

``Inert`` marks text that is safe where Markdown is expected; the card's template refuses any other string. HTML goes
through Jinja's own escaping after ``clean``.
"""

from __future__ import annotations

import re
import unicodedata

JOINERS = "\u200c\u200d"
"""Zero-width joiners: part of correct writing in many scripts and in emoji, but only noise in a name."""

_SAFE_PUNCTUATION = frozenset(" ,.;()%/'’“”…−–—→-+=")


class Inert(str):
    """Text that is safe to place in Markdown as it is."""


def clean(text: str, *, lines: bool = False, limit: int = 300) -> str:
    """Make every character visible: controls, bidi overrides and other hidden characters become U+FFFD.

    Args:
        lines: keep line breaks (and the joiners of real writing); else all white space becomes single spaces.
        limit: the longest result; the rest is cut and marked by an ellipsis.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = "".join(_visible(character, lines) for character in text[: limit + 1])
    shown = re.sub(
        r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
        r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+",
        r"\1",
        shown,
    )
    if not lines:
        shown = re.sub(r" {2,}", " ", shown).strip()
    return shown[:limit] + "…" if len(text) > limit else shown


def code(text: str) -> Inert:
    """A code span, safe in prose and in table cells.

    The three characters that a code span in a table cannot carry are shown as their nearest look-alikes.
    """
    shown = clean(text, limit=120).replace("`", "'").replace("|", "¦").replace("\\", "⧵")
    return Inert(f"`{shown}`") if shown else Inert("(empty)")


def prose(text: str) -> Inert:
    """Running text: every character that Markdown, HTML or a mail/link finder could act on becomes an entity."""
    shown = clean(text, limit=600)
    encoded = "".join(c if c.isalnum() or c in _SAFE_PUNCTUATION else f"&#{ord(c)};" for c in shown)
    encoded = encoded.replace("&#58; ", ": ")
    encoded = re.sub(r"(?i)(www|ftp)\.", lambda match: f"{match[1]}&#46;", encoded)
    # A text that opens a list item must not open a list of its own ("1. ", "- ").
    return Inert(re.sub(r"^(\d*)([^\w\s&])", lambda match: f"{match[1]}&#{ord(match[2])};", encoded))


def fence(text: str, language: str = "") -> Inert:
    """A fenced code block, with a fence longer than any run of backticks inside."""
    shown = clean(text, lines=True, limit=20_000).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    ticks = "`" * max(3, longest + 1)
    return Inert(f"{ticks}{language}\n{shown}\n{ticks}")


def web_address(text: str | None) -> str | None:
    """The text if it is a plain http(s) address, else None: a licence link never becomes ``javascript:``."""
    if text is not None and re.fullmatch(r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(/[A-Za-z0-9._~/%+#?=&-]*)?", text):
        return text
    return None


def _visible(character: str, lines: bool) -> str:
    if character in "\n\t" and lines:
        return character
    category = unicodedata.category(character)
    if character in "\t\n\v\f" or category in ("Zs", "Zl", "Zp"):
        return " "
    if lines and character in JOINERS:
        return character
    return "\ufffd" if category in ("Cc", "Cf", "Cs", "Co", "Cn") else character
