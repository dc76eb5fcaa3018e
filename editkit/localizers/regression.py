"""Effects of single heads from the scores of masks: sparse regression on y = baseline + masks @ effects.

    recover(masks, scores, baseline=0.9, alpha=0.01)
    -> Recovery(effects=[0, -0.31, 0, ...], r2=0.83, r2_out=0.71, alpha=0.01, active=12)

The paper's objective (arXiv 2603.03335, eq. 1) is (1/2M) ||t - Phi x||^2 + alpha ||x||_1, where t is either the score
minus the baseline (as the paper writes) or the standardised score with an intercept (as its code does).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

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
        model = _model(features, values, alpha, intercept).fit(features, values)
        outside = _held_out(model, features, values) if validate else float("nan")
    left, total = ((each**2).sum() for each in (values - model.predict(features), values))
    inside = float(1 - left / total) if total > 0 else 0.0
    used = float(getattr(model, "alpha", np.nan))
    return Recovery(model.coef_ * scale, inside, outside, used, int(np.count_nonzero(model.coef_)))


def _model(features: np.ndarray, values: np.ndarray, alpha: Alpha, intercept: bool) -> Any:
    """scikit-learn's model, not fitted; ``"cv"`` is a Lasso whose penalty was chosen on all masks."""
    from sklearn.linear_model import Lasso, LassoCV, OrthogonalMatchingPursuit

    if alpha == "omp":
        steps = min(PURSUIT_STEPS, *features.shape)
        return OrthogonalMatchingPursuit(n_nonzero_coefs=steps, fit_intercept=intercept)
    if alpha == "cv":
        folds = min(FOLDS, len(values))
        search = LassoCV(alphas=20, cv=folds, max_iter=2000, fit_intercept=intercept)
        alpha = float(search.fit(features, values).alpha_)
    return Lasso(alpha=alpha, max_iter=5000, fit_intercept=intercept)


def _held_out(model: Any, features: np.ndarray, values: np.ndarray) -> float:
    """Every FOLDS-th mask is left out in turn; masks are exchangeable, so no shuffling is needed."""
    from sklearn.metrics import r2_score
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    if len(values) < 2 * FOLDS:
        return float("nan")
    folds = PredefinedSplit(np.arange(len(values)) % FOLDS)
    return float(r2_score(values, cross_val_predict(model, features, values, cv=folds)))
