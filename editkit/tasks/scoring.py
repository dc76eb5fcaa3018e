"""Scorers for the user's own prompts: the text of an answer and the row it answers, to a score in [0, 1].

scorer: {word: [ahoy, matey]}         1 if the answer holds any of these as a whole word or phrase, in any case
scorer: {contains: [ahoy, matey]}     the same anywhere: arr is also in "carry"
scorer: {regex: '\\barr+\\b'}           1 if the pattern is found (the regex module's syntax)
scorer: {word-list: rude.txt}         the same as word, with the words in a file, one a line; or a list
scorer: exact                         1 if the answer is the row's `answer`; case and outer punctuation do not count
scorer: numeric                       1 if the last number of the answer is the row's `answer`
scorer: refusal                       1 if the answer refuses, told by a list of patterns (refusal.py)
scorer: {classifier: {model: ID, label: toxic}}    1 if the label's probability is at least a half (classifier.py)
scorer: {judge: {model: NAME, question: ...}}      1 if a language model says yes (model_judge.py)
scorer: {python: my_module:score}     score(answer, row) -> number; runs your code, so only where you allow it

`word` and `contains` without a list look for the row's own `answer`. Patterns may be hostile (a catastrophic one takes
years on a short text), so matching is cut off after a second, and that is an error, never a score.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import math
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import regex

from editkit.errors import EditkitError, first_line
from editkit.tasks import classifier, model_judge, refusal
from editkit.tasks.classifier import Classifier
from editkit.tasks.model_judge import ModelJudge
from editkit.tasks.plain import plain

Judge = Callable[[str, Mapping[str, Any]], tuple[float, str]]
"""(answer, row) -> (score in [0, 1], what it was given for)."""

SCORERS = ("word", "contains", "regex", "word-list", "exact", "numeric", "refusal", "classifier", "judge", "python")
NEED_ANSWER = ("exact", "numeric")
BY_MODELS = ("classifier", "judge")
OF_THE_ROW = ("word", "contains")
"""Scorers that without a setting look for the row's `answer`."""
PATIENCE = 1.0
"""Seconds a pattern may take on one answer."""
PATIENCE_COMPILING, WAITING = 5, 60
"""Seconds of work that compiling a pattern may take, and of waiting where the machine is busy."""
LISTED = 12
"""So many texts of a scorer are named in its rule."""
COMPILE = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]),) * 2)
except ImportError:
    pass
import regex
regex.compile(sys.stdin.buffer.read().decode(), regex.IGNORECASE)
"""

_NUMBER = regex.compile(
    r"[-+\u2212]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+\u2212]?\d{1,3}(?!\w))?"  # 1e-05, as JSON and Python write small numbers; but no 3e, 3em, 3e8f
)


@dataclass(frozen=True)
class Scorer:
    """A judge, and what it goes by: measurements are kept under the latter, from one process to the next.

    Args:
        setting: the texts, the pattern, the words, or the function's name and the digest of its file.
        rule: what an answer must be to score 1, for a person.
        model: the model that judges, if one does.
    """

    kind: str
    setting: str
    judge: Judge = field(repr=False)
    rule: str = field(default="", repr=False)
    model: Classifier | ModelJudge | None = field(default=None, repr=False)

    @property
    def judged_by(self) -> str:
        """The model that judges and its version, as far as that is known by now; empty if rules or code do."""
        return "" if self.model is None else self.model.said

    def __call__(self, answer: str, row: Mapping[str, Any]) -> tuple[float, str]:
        return self.judge(answer, row)


def scorer(
    kind: str, setting: Any, *, where: str, folder: Path, allow_python: bool = False, planning: bool = False
) -> Scorer:
    """The scorer ``kind`` with its setting, checked before anything runs.

    Args:
        setting: what follows the scorer's name in the table; None if nothing does.
        where: the file, for messages.
        folder: where relative files and Python modules are looked up.
        allow_python: whether `python` may import and run the user's function.
        planning: whether the task is only described: its module is looked for, but neither imported nor run.
    """
    if kind not in SCORERS:
        raise EditkitError(f"{where}: unknown scorer {kind!r}. Expected one of {', '.join(SCORERS)}, or choice.")
    if kind in NEED_ANSWER:
        if setting is not None:
            raise EditkitError(f"{where}: the scorer {kind} takes no setting, found {setting!r:.60}; write `{kind}`.")
        if kind == "exact":
            return Scorer(kind, "", _exact, "the row's answer; case and punctuation around it do not count")
        return Scorer(kind, "", _numeric, "its last number is the row's answer")
    if kind == "refusal":
        if setting is not None:
            raise EditkitError(f"{where}: the scorer refusal takes no setting, found {setting!r:.60}; write `refusal`.")
        return Scorer(kind, refusal.VERSION, _refusal, "it refuses what was asked (English; told by patterns)")
    if kind in BY_MODELS:
        return _by_model(kind, setting, where, folder, planning)
    if kind in OF_THE_ROW and setting is None:
        own, how = (_word, "as a whole word") if kind == "word" else (_contains, "anywhere, also inside a word")
        return Scorer(kind, repr(None), own, f"the row's answer {how}, in any case")
    if kind == "contains":
        texts = _texts(setting, kind, where)
        rule = f"any of these in any case, also inside a word: {_listed(texts)}"
        return Scorer(kind, repr(texts), partial(_contains, texts=texts), rule)
    if kind in ("word", "word-list"):
        words = _texts(setting, kind, where) if kind == "word" else word_list(setting, where, folder)
        pattern = _words(words)
        rule = f"any of these as a whole word, in any case: {_listed(words)}"
        return Scorer(kind, pattern.pattern, partial(_word_list, pattern=pattern), rule)
    if not isinstance(setting, str) or not setting:
        example = {"regex": "{regex: '\\barr+\\b'}", "python": "{python: my_module:score}"}[kind]
        raise EditkitError(f"{where}: the scorer {kind} needs text, as in {example}; found {setting!r:.60}.")
    if kind == "regex":
        pattern = _pattern(setting, where)
        return Scorer(kind, setting, partial(_regex, pattern=pattern, where=where), f"the pattern {setting} is found")
    if planning:
        _module_and_function(setting, where, folder)
        return Scorer(kind, setting, partial(_planned, name=setting, where=where))
    if not allow_python:
        raise EditkitError(
            f"{where}: the scorer {setting!r} would run Python code from this machine in this process. "
            "Read it, then pass --allow-code-execution (allow_python=True from Python)."
        )
    function, digest = _function(setting, where, folder)
    judge = partial(_python, function=function, name=setting, where=where)
    return Scorer(kind, f"{setting} {digest}", judge, f"what {setting} says")


def _by_model(kind: str, setting: Any, where: str, folder: Path, planning: bool) -> Scorer:
    """A scorer that is a model; planning reads its table, and looks for no model."""
    if kind == "classifier":
        keys = classifier.table(setting, where)
        rule = f"the classifier {keys['model']} gives the label {keys['label']} a probability of a half or more"
        if planning:
            return Scorer(kind, repr(dict(keys)), partial(_planned, name=keys["model"], where=where), rule)
        found = classifier.read(setting, where=where, folder=folder)
        return Scorer(kind, found.said, partial(_classified, found=found), rule, found)
    judge = model_judge.read(setting, where=where)
    rule = f"the judge {judge.model} says yes to: {judge.question}"
    if planning:
        return Scorer(kind, repr(judge), partial(_planned, name=judge.model, where=where), rule)
    return Scorer(kind, f"{judge.key} {judge.unclear}", partial(_judged, judge=judge), rule, judge)


def _pattern(text: str, where: str) -> Any:
    """The pattern compiled, first by another process: compiling has no limit of its own, and nested counts such as
    ((a{1,900}){1,900}){1,900} take hours."""
    command = [sys.executable, "-c", COMPILE, str(PATIENCE_COMPILING)]
    try:
        tried = subprocess.run(command, input=text.encode(), stderr=subprocess.DEVNULL, timeout=WAITING)
        if tried.returncode < 0:  # a signal: its time is up
            raise subprocess.TimeoutExpired(command, PATIENCE_COMPILING)
        return regex.compile(text, regex.IGNORECASE)
    except subprocess.TimeoutExpired:
        said = f"takes more than {PATIENCE_COMPILING} s to compile. Write it without counts within counts"
    except (regex.error, RecursionError, ValueError, OverflowError) as error:
        said = f"is not valid: {first_line(error)}"
    raise EditkitError(f"{where}: the pattern {text!r:.80} {said}.")


def numbers(text: str) -> list[float]:
    """Every number in the text, in order; commas between thousands, exponents and the minus sign U+2212 count."""
    return [float(match.replace(",", "").replace("\u2212", "-")) for match in _NUMBER.findall(text)]


def _contains(answer: str, row: Mapping[str, Any], *, texts: tuple[str, ...] | None = None) -> tuple[float, str]:
    wanted = _answers(row) if texts is None else texts
    folded = answer.casefold()
    held = next((text for text in wanted if text.casefold() in folded), "")
    return float(bool(held)), held


def _word(answer: str, row: Mapping[str, Any]) -> tuple[float, str]:
    return _word_list(answer, row, pattern=_words(_answers(row)))


def _regex(answer: str, row: Mapping[str, Any], *, pattern: Any, where: str) -> tuple[float, str]:
    try:
        match = pattern.search(answer, timeout=PATIENCE)
    except TimeoutError as error:
        raise EditkitError(
            f"{where}: the pattern {pattern.pattern!r:.80} took more than {PATIENCE:g} s on an answer of {len(answer)} "
            "characters. Nested repeats such as (a+)+ do this: rewrite it without them, or use contains or word-list."
        ) from error
    return float(match is not None), "" if match is None else match[0]


def _word_list(answer: str, row: Mapping[str, Any], *, pattern: Any) -> tuple[float, str]:
    match = pattern.search(" ".join(answer.casefold().split()))
    return float(match is not None), "" if match is None else match[0]


def _exact(answer: str, row: Mapping[str, Any]) -> tuple[float, str]:
    given = plain(answer)
    return float(any(given == plain(wanted) for wanted in _answers(row))), given[:80]


def _numeric(answer: str, row: Mapping[str, Any]) -> tuple[float, str]:
    wanted, given = numbers(str(row["answer"])), numbers(answer)
    if not given:
        return 0.0, "no number"
    near_zero = 1e-9 if wanted[-1] == 0 else 0.0  # beside 1e-12, a zero is not right
    return float(math.isclose(given[-1], wanted[-1], rel_tol=1e-6, abs_tol=near_zero)), f"{given[-1]:g}"


def _refusal(answer: str, row: Mapping[str, Any]) -> tuple[float, str]:
    words = refusal.refusal(answer)
    return float(bool(words)), words


def _classified(answer: str, row: Mapping[str, Any], *, found: Classifier) -> tuple[float, str]:
    probability = found(answer)
    return float(probability >= 0.5), f"{found.label} {probability:.3f}"


def _judged(answer: str, row: Mapping[str, Any], *, judge: ModelJudge) -> tuple[float, str]:
    word = judge(str(row["prompt"]), answer)
    return float(word == "yes" if word in ("yes", "no") else judge.unclear or 0), word


def _python(
    answer: str, row: Mapping[str, Any], *, function: Callable[..., Any], name: str, where: str
) -> tuple[float, str]:
    try:
        value = function(answer, dict(row))
    except Exception as error:
        raise EditkitError(
            f"{where}: the scorer {name!r} failed{_reason(error, name)}, on the answer {answer!r:.60}. "
            "Mend the function: it must return a number from 0 to 1 for any text."
        ) from error
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise EditkitError(f"{where}: {name} must return a number from 0 to 1, found {value!r:.60} for {answer!r:.60}.")
    return float(value), ""


def _planned(answer: str, row: Mapping[str, Any], *, name: str, where: str) -> tuple[float, str]:
    raise EditkitError(f"{where}: {name} was found only to plan with, and cannot score {answer!r:.60}.")


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    answer = row["answer"]
    return tuple(str(each) for each in (answer if isinstance(answer, list | tuple) else [answer]))


def _texts(setting: Any, kind: str, where: str) -> tuple[str, ...]:
    texts = [setting] if isinstance(setting, str) else setting
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise EditkitError(
            f"{where}: the scorer {kind} needs texts, as in {{{kind}: [ahoy, matey]}}; found {setting!r:.60}."
        )
    return tuple(texts)


def word_list(setting: Any, where: str, folder: Path) -> list[str]:
    """The words and phrases of a list or of a file (one per line, UTF-8), case folded.

    Raises:
        EditkitError: the file cannot be read, or these are no texts.
    """
    words = setting
    if isinstance(setting, str):
        path = folder / setting
        try:
            words = [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise EditkitError(
                f"{where}: the word list {path} cannot be read: {error}. One word per line, UTF-8."
            ) from error
    return [" ".join(word.casefold().split()) for word in _texts(words, "word-list", where)]


def _words(texts: Iterable[str]) -> Any:
    """Any of the texts, case folded, as whole words: the longest first."""
    # Word boundaries by lookaround, because an entry may begin or end with a sign ("f*ck").
    words = sorted({" ".join(text.casefold().split()) for text in texts})
    options = "|".join(sorted(map(regex.escape, words), key=len, reverse=True))
    return regex.compile(rf"(?<!\w)(?:{options})(?!\w)")


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:LISTED])
    return f"{shown} and {len(texts) - LISTED} more" if len(texts) > LISTED else shown


def _module_and_function(name: str, where: str, folder: Path) -> tuple[str, str]:
    """Both names, where there is such a module: nothing of it is run."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise EditkitError(f"{where}: a Python scorer is written module:function, found {name!r}.")
    beside = folder / f"{module}.py"
    package = module.partition(".")[0]  # to look for a module inside of a package would import the package
    try:
        exists = beside.is_file() or importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        exists = False
    if not exists:
        raise EditkitError(
            f"{where}: the scorer {name!r} cannot be imported: there is no module {module}. Expected {beside}."
        )
    return module, attribute


def _function(name: str, where: str, folder: Path) -> tuple[Callable[..., Any], str]:
    """The function, and the digest of the file it was looked up in."""
    module, attribute = _module_and_function(name, where, folder)
    beside = folder / f"{module}.py"
    try:
        if beside.is_file():
            spec = importlib.util.spec_from_file_location(module, beside)
            assert spec is not None and spec.loader is not None
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
        else:
            loaded = importlib.import_module(module)
    except ImportError as error:
        raise EditkitError(f"{where}: the scorer {name!r} cannot be imported: {error}. Expected {beside}.") from error
    except (Exception, SystemExit) as error:
        raise EditkitError(
            f"{where}: the scorer {name!r} cannot be imported: {module} failed{_reason(error, name)}. Mend the file."
        ) from error
    function = getattr(loaded, attribute, None)
    if not callable(function):
        raise EditkitError(f"{where}: {module} has no function {attribute!r}.")
    return function, _digest(loaded)


def _reason(error: BaseException, name: str) -> str:
    """What went wrong, and in which line of the user's module: the deepest one that the error came through."""
    file = f"{name.partition(':')[0].rpartition('.')[2]}.py"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == file]
    if isinstance(error, SyntaxError) and Path(error.filename or "").name == file:
        lines.append(error.lineno)
    where = f" in line {lines[-1]} of {file}" if lines else ""
    return f"{where} ({type(error).__name__}: {first_line(error)})"


def _digest(module: ModuleType) -> str:
    """Of the module's own file: what it imports is not seen. Nothing for a module without a file."""
    path = Path(getattr(module, "__file__", None) or "")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
