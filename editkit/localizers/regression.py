"""Effects of single heads from the scores of masks: sparse regression on y = baseline + masks @ effects.

    recover(masks, scores, baseline=0.9, alpha=0.01)
    -> Recovery(effects=[0, -0.31, 0, ...], r2=0.83, r2_out=0.71, alpha=0.01, active=12)

The paper's objective (arXiv 2603.03335, eq. 1) is (1/2M) ||t - Phi x||^2 + alpha ||x||_1, where t is either the score
minus the baseline (as the paper writes) or the standardised score with an intercept (as its code does).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Alpha = float | Literal["cv", "omp"]
Target = Literal["standardise", "baseline"]

FOLDS = 5
PURSUIT_STEPS = 10
"""How many heads orthogonal matching pursuit takes: twice the five that the paper reports."""


@dataclass(frozen=True)
class Recovery:
    """Estimated effects in score units (negative = the head is needed), and how far to trust them.

    ``r2`` is on the masks that were fitted, ``r2_out`` on masks held out in turn (NaN where that was not tried);
    ``r2_out`` near or below 0 means that the effects predict nothing.
    """

    effects: np.ndarray
    r2: float
    r2_out: float
    alpha: float
    """The penalty that was used; NaN for matching pursuit."""
    active: int


def recover(
    masks: np.ndarray,
    scores: np.ndarray,
    baseline: float,
    *,
    alpha: Alpha = 0.01,
    target: Target = "standardise",
    validate: bool = True,
) -> Recovery:
    """Fit the linear model of knockouts.

    Args:
        masks: bool[m, columns], True = knocked out.
        scores: float[m], the mean score under each mask.
        baseline: the score of the unedited model; used by ``target="baseline"`` only.
        alpha: the Lasso penalty; ``"cv"`` chooses it by cross-validation (needs 8 passes or more to be better than
            0.01); ``"omp"`` takes heads one by one instead (better with few passes).
        target: ``"standardise"`` = zero mean, unit variance and an intercept, as in the paper's code;
            ``"baseline"`` = score - baseline, no intercept, as in eq. 1.
        validate: fit again without each fifth of the masks, for ``r2_out`` (NaN otherwise).
    """
    features = masks.astype(float)
    intercept = target == "standardise"
    scale = float(scores.std()) if intercept else 1.0
    shift = float(scores.mean()) if intercept else baseline
    if scale < 1e-12 or not np.ptp(features, axis=0).any():
        return Recovery(np.zeros(masks.shape[1]), 0.0, 0.0, float("nan"), 0)
    values = (scores - shift) / scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a penalty that leaves a path unconverged shows in r2_out, with a number
        fit, used = _fitter(features, values, alpha, intercept)
        coefficients, offset = fit(features, values)
        outside = _held_out(fit, features, values) if validate else float("nan")
    inside = _r2(values, features @ coefficients + offset, 0.0)
    return Recovery(coefficients * scale, inside, outside, used, int(np.count_nonzero(coefficients)))


Fit = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]


def _fitter(features: np.ndarray, values: np.ndarray, alpha: Alpha, intercept: bool) -> tuple[Fit, float]:
    if alpha == "omp":
        return lambda x, y: _pursuit(x, y, intercept), float("nan")
    penalty = _cross_validated(features, values, intercept) if alpha == "cv" else float(alpha)
    return lambda x, y: _lasso(x, y, penalty, intercept), penalty


def _lasso(features: np.ndarray, values: np.ndarray, alpha: float, intercept: bool) -> tuple[np.ndarray, float]:
    from sklearn.linear_model import Lasso

    model = Lasso(alpha=alpha, max_iter=5000, fit_intercept=intercept).fit(features, values)
    return model.coef_, float(model.intercept_)


def _cross_validated(features: np.ndarray, values: np.ndarray, intercept: bool) -> float:
    from sklearn.linear_model import LassoCV

    folds = min(FOLDS, len(values))
    model = LassoCV(alphas=20, cv=folds, max_iter=2000, fit_intercept=intercept).fit(features, values)
    return float(model.alpha_)


def _pursuit(features: np.ndarray, values: np.ndarray, intercept: bool) -> tuple[np.ndarray, float]:
    from sklearn.linear_model import OrthogonalMatchingPursuit

    steps = min(PURSUIT_STEPS, len(values), features.shape[1])
    centre = features.mean(0) if intercept else np.zeros(features.shape[1])
    middle = values.mean() if intercept else 0.0
    pursuit = OrthogonalMatchingPursuit(n_nonzero_coefs=steps, fit_intercept=False)
    model = pursuit.fit(features - centre, values - middle)
    return model.coef_, float(middle - centre @ model.coef_)


def _held_out(fit: Fit, features: np.ndarray, values: np.ndarray) -> float:
    """Every FOLDS-th mask is left out in turn; masks are exchangeable, so no shuffling is needed."""
    if len(values) < 2 * FOLDS:
        return float("nan")
    predicted = np.zeros(len(values))
    for fold in range(FOLDS):
        out = np.arange(len(values)) % FOLDS == fold
        coefficients, offset = fit(features[~out], values[~out])
        predicted[out] = features[out] @ coefficients + offset
    return _r2(values, predicted, float(values.mean()))


def _r2(values: np.ndarray, predicted: np.ndarray, centre: float) -> float:
    total = float(((values - centre) ** 2).sum())
    return 1 - float(((values - predicted) ** 2).sum()) / total if total > 0 else 0.0
