"""Inputs that are almost what a loader expects: valid ones whose structure, lines or bytes were changed.

    documents([b'{"units": ["L1H2"]}'])      b'{"units": [NaN]}', b'{"units": ["L1H2"], "units": null}', ...
    lines([b"goal: 0.1"], YAML)              b"goal: &a [*a]", b"goal: 0.1\\ngoal: 0.1", ...
    raw([b"GGUF..."])                        flipped bits, spans cut out or doubled, numbers beyond any size

Hypothesis draws the changes, and looks for the fewest that still fail. JSON is written here and not by ``json``: a name
may come twice, and a value may be what no writer would write.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Inputs = SearchStrategy[bytes]
Change = Callable[[DrawFn, Any], Any]


class Raw(str):
    """Text that stands in a document as it is."""


class Pairs(list[tuple[str, Any]]):
    """An object as its pairs: a name may come twice."""


JSON = tuple(
    map(
        Raw,
        (
            *(
                "null",
                "true",
                "false",
                "0",
                "-1",
                "1",
                "0.5",
                "1.0",
                "-0.0",
                "{}",
                "[]",
                '""',
                '"L1H2"',
                "[[]]",
                "[{}]",
            ),
            *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "1e308", "1e16", "5e-324", "1E400"),
            *("2147483648", "4294967296", "9223372036854775807", "18446744073709551616", "9007199254740993"),
            *("1" + "0" * 30, "1" + "0" * 400, "1" * 5000, "-" + "9" * 4300, "1000000", "100000000"),
            *(r'"\ud800"', r'"\udfff x"', r'"\u0000"', r'"a\nb"', r'"\u001b[2Jx"', r'"\u202eabc"', r'"\u2028"'),
            *('"../../x"', '"/etc/passwd"', '"a/b"', '"CON"', '"__class__"', '"{{x}}"', '"<script>"', '"%s%n{0}"'),
            *(
                '"sha256:"',
                '"1"',
                '"-1"',
                '"nan"',
                '"1e999"',
                '"\u0661"',
                '"' + "a" * 300 + '"',
                '"' + "x" * 70_000 + '"',
            ),
            *("[" * depth + "]" * depth for depth in (60, 300, 900, 100_000)),
            *('{"a":' * depth + "1" + "}" * depth for depth in (60, 300, 900)),
            *("[" + "0," * 5000 + "0]", "{" + ",".join(f'"{at}":0' for at in range(3000)) + "}", "[1,[2,[3]]]"),
            *("", "{", "]", "'a'", "01", "1_000", "+1", "0x10", "None", "undefined", '"a', "// x", "\ufeff1"),
        ),
    )
)
"""Values of JSON, and what is almost one."""

NAMES = ("", "a\nb", "\ud800", "x" * 300, "format", "../x", "\x1b[2J", "1" * 5000, "-1", "\u0661", "\u00b2")
DIGITS = ("", "7", "65536", "99999999", "9" * 30, "\u0661", "-1")
"""What may stand for the number in a name, such as that of a layer."""

YAML = tuple(
    map(
        Raw,
        (
            *("&a [*a]", "&a {b: *a}", "*nowhere", "{<<: {a: 1}}", "{<<: [1]}", "<<", "!!python/object:os.system x"),
            *(
                "!!python/name:os.system",
                "!!binary 'A==='",
                "!!binary x",
                "!!set {a, b}",
                "!!omap [a: 1]",
                "!!pairs [1]",
            ),
            *(
                "!!int x",
                "!!float x",
                "!!bool x",
                "!!timestamp x",
                "!!null x",
                "!!map [1]",
                "!!seq {a: 1}",
                "!!str {a: 1}",
            ),
            *("!x y", "!<tag:yaml.org,2002:int> '0b'", "2024-99-99", "2024-01-01", "2024-01-01T99:99:99", "0o9", "0b"),
            *(
                "0b2",
                "0x",
                "1:60:60",
                "1:99",
                "190:20:30.15",
                "0b_",
                "0x_",
                "-",
                "+",
                ".",
                "-.inf",
                ".nan",
                "1e5",
                "1_0",
            ),
            *(
                "=",
                "~",
                "?",
                "? a",
                "- a",
                "a: b: c",
                "'a",
                '"\\x',
                '"\\ud800"',
                '"\\U00110000"',
                "@a",
                "`a",
                "%a",
                "|",
            ),
            *(
                "|99",
                ">-",
                "\t",
                "\ta: 1",
                "[a",
                "{a",
                "{a: 1, a: 2}",
                "{[a]: 1}",
                "{{a: 1}: 1}",
                "{1: 2}",
                "{null: 1}",
            ),
            *("yes", "no", "on", "#x", "---", "...", "%YAML 9.9", "\x07", "\x85", "\ufeff", "\ud7ff", "{? [1, 2]: 3}"),
            *("[" * 39 + "]" * 39, "[" * 3000, "{a: " * 39 + "1" + "}" * 39, "[&a " + "[*a," * 2 + "1]]]"),
            *("[&a [x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b], &d [*c,*c,*c], [*d,*d,*d]]",),
        ),
    )
)
"""What YAML has besides: aliases, tags, and scalars that look like dates and numbers."""

WORDS = (
    *("", "0", "-1", "1e999", "nan", '"', '"a', "a,b", ",,,,", "|", "a|a", "\x00", "\x1b[2J", "\u202e", "\ufeff", "\t"),
    *(
        "=1+1",
        "'",
        "\r",
        "\u2028",
        "\x85",
        "\\",
        "\\ud800",
        "x" * 70_000,
        "[" * 2000,
        "9" * 5000,
        "\u0661",
        "\U0010ffff",
    ),
)
"""Pieces of plain text."""

JINJA = (
    *("{{ 1/0 }}", "{{ 5 is divisibleby 0 }}", "{% for x in range(10**9) %}{% endfor %}", "{{ range(10**9)|list }}"),
    *("{{ messages[9] }}", "{{ messages.x.y }}", "{{ raise_exception('no') }}", "{% include 'x' %}", "{% extends x %}"),
    *("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
    *("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{{ x|int(base=99) }}", "{{"),
    *(
        "{% if %}",
        "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{{ [1]|sum(start='a') }}",
        "}}",
    ),
    *("{{ '%d' % 'a' }}", "{{ '%1000000d' % 1 }}", "{{ messages|tojson(indent=10**3) }}", "{{ 'a'.format(1, **2) }}"),
    *(
        "{% generation %}{% endgeneration %}",
        "{{ lipsum(n=10**6) }}",
        "{{ dict(a=1)|xmlattr }}",
        "{{ cycler() }}",
        "#}",
    ),
    *(
        "{{ messages|map('upper')|list }}",
        "{{ messages|groupby('x') }}",
        "{{ 10**10**2 }}",
        "{{ 'x'.encode('x') }}",
        "{%",
    ),
    *("{{ ('x'*999)|wordwrap(-1) }}", "{{ 'x'|batch(0)|list }}", "{{ 'x'|slice(0)|list }}", "{{ namespace(1) }}", "{#"),
    *("{{ 'a'|indent(10**3) }}", "{{ 'a'|center(10**4) }}", "{{ 'x'|truncate(-5) }}", "{{ 1|round(10**3) }}"),
    *("{% set messages = 1 %}", "{{ strftime_now('%Q') }}", "{{ strftime_now(5) }}", "{% break %}", "\ud7ff", "\x00"),
)
"""Pieces of templates that fail, run on, or reach for what is none of theirs."""

NUMBERS = tuple(
    (value % (1 << 8 * size)).to_bytes(size, order)
    for size in (1, 2, 4, 8)
    for value in (0, 1, 2, 7, 8, 255, 256, 65535, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, -1, -2, -8)
    for order in ("little", "big")
)
"""Lengths, counts and offsets at the edges of what fits, and beyond."""


def documents(seeds: Sequence[bytes], odd: Sequence[Raw] = JSON, *, most: int = 4) -> Inputs:
    """JSON documents: some values changed, and sometimes some bytes too."""

    @st.composite
    def drawn(draw: DrawFn) -> bytes:
        text = written(changed(draw, read(draw(st.sampled_from(list(seeds)))), odd, most))
        return spoiled(draw, text.encode("utf-8", "surrogatepass"))

    return drawn()


def lines(seeds: Sequence[bytes], odd: Sequence[str], *, rows: bool = False) -> Inputs:
    """Text: lines gone, doubled, exchanged; an odd piece in place of what stands behind a colon, or anywhere.

    Args:
        rows: each line is a JSON object, whose values change.
    """

    @st.composite
    def drawn(draw: DrawFn) -> bytes:
        content = draw(st.sampled_from(list(seeds))).decode().split("\n")
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, len(content) - 1))
            how = draw(st.sampled_from(("value", "piece", "gone", "twice", "moved", "row" if rows else "value")))
            if how == "row" and content[at].strip().startswith("{"):
                try:
                    content[at] = written(changed(draw, read(content[at].encode()), JSON, 2)).replace("\n", " ")
                except (ValueError, RecursionError):  # a row that was changed before
                    continue
            elif how == "value":
                key, colon, _ = content[at].partition(":")
                content[at] = f"{key}{colon} {draw(st.sampled_from(list(odd)))}"
            elif how == "piece":
                start = draw(st.integers(0, len(content[at])))
                content[at] = content[at][:start] + draw(st.sampled_from(list(odd))) + content[at][start:]
            elif how == "gone" and len(content) > 1:
                del content[at]
            else:
                other = draw(st.integers(0, len(content) - 1))
                content.insert(other, content[at] if how == "twice" else content.pop(at))
            content = content or [""]
        return spoiled(draw, "\n".join(content).encode("utf-8", "surrogatepass"))

    return drawn()


def raw(seeds: Sequence[bytes], spans: Callable[[bytes], Sequence[tuple[int, int]]] = lambda seed: ()) -> Inputs:
    """Bytes changed at any place, and where a file's own numbers stand: ``spans`` names those as (start, end)."""

    @st.composite
    def drawn(draw: DrawFn) -> bytes:
        seed = draw(st.sampled_from(list(seeds)))
        known = spans(seed)
        for start, end in sorted(draw(st.lists(st.sampled_from(known), max_size=3)) if known else (), reverse=True):
            held = seed[start:end]
            fitting = [number for number in NUMBERS if len(number) == len(held)] or [held]
            other = st.sampled_from([*fitting, b"", held * 2, held[::-1], bytes(len(held)), *NUMBERS[-8:]])
            seed = seed[:start] + draw(other) + seed[end:]
        return bitten(draw, seed, least=0 if known else 1)

    return drawn()


def safetensors(seeds: Sequence[bytes], *, within: str = "") -> Inputs:
    """Files with a changed header over the honest bytes.

    Args:
        within: the name in the metadata whose text is a JSON document that changes instead.
    """

    @st.composite
    def drawn(draw: DrawFn) -> bytes:
        seed = draw(st.sampled_from(list(seeds)))
        length = int.from_bytes(seed[:8], "little")
        header, data = read(seed[8 : 8 + length]), seed[8 + length :]
        if within and draw(st.booleans()):
            metadata = next(value for name, value in header if name == "__metadata__")
            at = [name for name, _ in metadata].index(within)
            metadata[at] = (within, written(changed(draw, read(metadata[at][1].encode()), JSON, 3)))
        else:
            header = changed(draw, header, JSON, 3)
        text = written(header).encode("utf-8", "surrogatepass")
        told = draw(st.sampled_from((len(text), len(text), len(text), len(text) + 1, len(text) - 1, 2**63, 2**40, 0)))
        return spoiled(draw, (told % 2**64).to_bytes(8, "little") + text + data)

    return drawn()


def zipped(inside: Inputs) -> Inputs:
    """Gzip files: what is in them changed, or they are."""
    bombs = [gzip.compress(bytes([each]) * (64 << 20), 9) for each in b"\0\n"]

    @st.composite
    def drawn(draw: DrawFn) -> bytes:
        made = gzip.compress(draw(inside), 1, mtime=0)
        how = draw(st.sampled_from(("whole", "whole", "whole", "twice", "bomb", "bitten")))
        bomb = bombs[draw(st.integers(0, 1))] if how == "bomb" else b""
        return {"twice": made * 2, "bomb": bomb}.get(how) or (bitten(draw, made) if how == "bitten" else made)

    return drawn()


def read(text: bytes) -> Any:
    """A document in which objects are pairs."""
    return json.loads(text, object_pairs_hook=Pairs)


def written(node: Any) -> str:
    """The document's text, odd values as they are."""
    if isinstance(node, Raw):
        return node
    if isinstance(node, Pairs):
        return "{" + ", ".join(f"{json.dumps(str(name))}: {written(value)}" for name, value in node) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(map(written, node)) + "]"
    return json.dumps(node)


def changed(draw: DrawFn, root: Any, odd: Sequence[Raw], most: int) -> Any:
    """The document with one to ``most`` of its values changed."""
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(root))
        if not places:
            return draw(st.sampled_from(list(odd)))
        holder, at = places[draw(st.integers(0, len(places) - 1))]
        name, value = holder[at] if isinstance(holder, Pairs) else ("", holder[at])
        how = draw(
            st.sampled_from(("odd", "odd", "odd", "gone", "twice", "renamed", "other", "wrapped", "number", "text"))
        )
        if how == "gone":
            del holder[at]
        elif how == "twice":
            holder.insert(draw(st.integers(0, len(holder))), holder[at])
        elif how == "renamed" and isinstance(holder, Pairs):
            names = [*(other for other, _ in holder), *NAMES, *(re.sub(r"[0-9]+", number, name) for number in DIGITS)]
            holder[at] = (draw(st.sampled_from(names)), value)
        else:
            new = _other(draw, how, value, places, odd)
            holder[at] = (name, new) if isinstance(holder, Pairs) else new
    return root


def _other(draw: DrawFn, how: str, value: Any, places: Sequence[tuple[list[Any], int]], odd: Sequence[Raw]) -> Any:
    if how == "other":  # what is right elsewhere
        holder, at = places[draw(st.integers(0, len(places) - 1))]
        found = holder[at][1] if isinstance(holder, Pairs) else holder[at]
        return found if isinstance(found, Raw) else read(written(found).encode()) if _is_whole(found) else None
    if how == "wrapped":
        return draw(st.sampled_from((lambda one: [one], lambda one: Pairs([("a", one)]), lambda one: [one, one])))(
            value
        )
    if how == "number":
        return draw(st.integers(-3, 12) | st.integers() | st.floats(0, 1) | st.floats(allow_nan=False))
    if how == "text":
        return draw(st.text(max_size=12))
    return draw(st.sampled_from(list(odd)))


def _is_whole(node: Any) -> bool:
    """Whether nothing odd is in it, so that its text can be read again."""
    if isinstance(node, Pairs):
        return all(_is_whole(value) for _, value in node)
    return all(map(_is_whole, node)) if isinstance(node, list) else not isinstance(node, Raw)


def _places(node: Any) -> Iterator[tuple[list[Any], int]]:
    """Where every value of the document stands."""
    if not isinstance(node, list):
        return
    for at, each in enumerate(node):
        yield node, at
        yield from _places(each[1] if isinstance(node, Pairs) else each)


def spoiled(draw: DrawFn, content: bytes) -> bytes:
    """One of eight with some bytes changed too."""
    return bitten(draw, content) if draw(st.integers(0, 7)) == 7 else content


def bitten(draw: DrawFn, content: bytes, *, least: int = 1) -> bytes:
    """Up to three spans of bytes cut out, doubled, overwritten or filled in; or the end gone."""
    for _ in range(draw(st.integers(least, 3))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from((1, 1, 2, 4, 8, 64, 4096))))
        held = content[start:end]
        new = draw(
            st.sampled_from(
                (b"", held * 2, bytes(each ^ 1 << 7 for each in held), bytes(len(held)), b"\xff" * len(held))
            )
            | st.sampled_from(NUMBERS)
            | st.binary(max_size=8)
        )
        content = content[:start] if draw(st.integers(0, 9)) == 9 else content[:start] + new + content[end:]
    return content
