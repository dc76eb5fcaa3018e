"""Ways to find the heads a capability depends on: one file per method, all called ``localizer(measure, columns, rng)``.

>>> LOCALIZERS["css"](measure, columns, np.random.default_rng(0)).columns[:5]
array([ 41, 107,  12,  63,  90])
"""

from __future__ import annotations

from editkit.localizers.adaptive import auto
from editkit.localizers.compressed import csb, css
from editkit.localizers.greedy import greedy, one_shot
from editkit.localizers.halving import halving
from editkit.localizers.protocol import Localizer

LOCALIZERS: dict[str, Localizer] = {
    "auto": auto,
    "halving": halving,
    "css": css,
    "csb": csb,
    "greedy": greedy,
    "one-shot": one_shot,
}
