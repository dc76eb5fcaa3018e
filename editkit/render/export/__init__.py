"""Results in the files of other evaluation programs. Each form is one file with ``write(results, folder)``.

Export("inspect", Path("logs")).write(of_outcome(outcome))       inspect view --log-dir logs
Export("lm-eval", Path("results")).write(of_outcome(outcome))    results/MODEL/results_*.json
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from editkit.checkpoints.staging import beside, check_free
from editkit.errors import UsageError
from editkit.evidence.results import Results
from editkit.render.export import inspect_logs, lm_eval_results

FORMS: dict[str, Callable[[Sequence[Results], Path], None]] = {
    "inspect": inspect_logs.write,
    "lm-eval": lm_eval_results.write,
}
"""Form -> its ``write``. What a form needs beyond editkit is imported where it is used."""


def default_directory(name: str | Path, to: str) -> Path:
    """The folder where the user names none: ``no-swear-inspect`` here."""
    return Path(f"{Path(name).absolute().name.removesuffix('.gguf')}-{to}")


@dataclass(frozen=True)
class Export:
    """Where results go, and in which form.

    Args:
        to: ``inspect`` or ``lm-eval``.
        directory: a new folder.
    """

    to: str
    directory: Path

    def check(self) -> None:
        """Refuse what could not be written, before the work that ends in it.

        Raises:
            UsageError: an unknown form, or one whose library is not installed.
            EditkitError: the folder is there already, or cannot be made.
        """
        if self.to not in FORMS:
            raise UsageError(f"{self.to}: there is no such form of results. Known: {', '.join(FORMS)}.")
        if self.to == "inspect":
            inspect_logs.require()
        check_free(self.directory)

    def write(self, results: Sequence[Results]) -> None:
        """Write the folder, whole or not at all. Two models of one name are told apart by a number.

        Raises:
            UsageError, EditkitError: as ``check``.
        """
        self.check()
        with beside(self.directory) as folder:
            FORMS[self.to](_apart(results), folder)


def _apart(results: Sequence[Results]) -> list[Results]:
    names = [each.model for each in results]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [
        replace(each, model=f"{each.model} ({again + 1})") if again else each
        for each, again in zip(results, before, strict=True)
    ]
