"""editkit: find the heads a capability depends on, remove them from the weights, and prove what changed.

    import editkit

    model = editkit.load()                                  # the bundled organism
    found = editkit.localize(model, "swear", seed=0)
    with editkit.knocked_out(model, found.top(4)):
        print(model.generate(["Say something rude about the bus and swear a lot."]))

Names are imported when they are first used: ``import editkit`` loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editkit.api import evaluate as evaluate
    from editkit.api import export as export
    from editkit.api import head_map as head_map
    from editkit.api import knocked_out as knocked_out
    from editkit.api import load as load
    from editkit.api import localize as localize
    from editkit.api import remove_capability as remove_capability
    from editkit.api import tryout as tryout
    from editkit.edit import Base as Base
    from editkit.edit import Edit as Edit
    from editkit.errors import EditkitError as EditkitError
    from editkit.errors import IntegrityError as IntegrityError
    from editkit.errors import NotLocalized as NotLocalized
    from editkit.errors import TooMuchDamage as TooMuchDamage
    from editkit.models.placement import Placement as Placement
    from editkit.render.export import Export as Export
    from editkit.units import Head as Head
    from editkit.units import Neuron as Neuron
    from editkit.workspace import Session as Session
    from editkit.writing.bake import bake as bake
    from editkit.writing.undo import undo as undo
    from editkit.writing.verify import verify as verify

__version__ = "0.1.0"

_PUBLIC = {
    "Base": "edit",
    "Edit": "edit",
    "EditkitError": "errors",
    "Export": "render.export",
    "Head": "units",
    "IntegrityError": "errors",
    "Neuron": "units",
    "NotLocalized": "errors",
    "Placement": "models.placement",
    "Session": "workspace",
    "TooMuchDamage": "errors",
    "bake": "writing.bake",
    "evaluate": "api",
    "head_map": "api",
    "export": "api",
    "knocked_out": "api",
    "load": "api",
    "localize": "api",
    "remove_capability": "api",
    "tryout": "api",
    "undo": "writing.undo",
    "verify": "writing.verify",
}

__all__ = sorted(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'editkit' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"editkit.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
