"""The Hub: ask before anything heavy (``preflight``), publish (``push``), check an edit (``pull_verify``).

checked = preflight("alice/no-swear", base=edit.base)
pushed = push(Path("no-swear"), "alice/no-swear")
pull_verify("alice/no-swear")
"""

from __future__ import annotations

from editkit.hub.preflight import Allow, Preflight, preflight
from editkit.hub.pull_verify import Verification, pull_verify
from editkit.hub.push import Pushed, push, push_finished

__all__ = ["Allow", "Preflight", "Pushed", "Verification", "preflight", "pull_verify", "push", "push_finished"]
