"""The losses of margins under every label, and a boosting step on rows that carry all labels."""

from __future__ import annotations

import numpy as np
import xgboost
from scipy.special import expit, log_softmax, softmax


def evaluate_losses(margin: np.ndarray) -> np.ndarray:
    """Return ℓ(f(x_i), k) for every label k, float64 (n_samples, n_labels).

    A margin of shape (n_samples,) is the log-odds of class 1, with the logistic loss; one of shape
    (n_samples, n_classes) has the loss −log softmax_k.
    """
    if margin.ndim == 1:
        return np.stack([np.logaddexp(0.0, margin), np.logaddexp(0.0, -margin)], axis=1)
    loss: np.ndarray = -log_softmax(margin, axis=1)
    return loss


def balance_classes(y: np.ndarray, weight: np.ndarray, n_classes: int) -> np.ndarray:
    """Return factors that give every class the weight of the first one, float64 (n_classes,).

    A class without rows keeps 1.
    """
    total = np.bincount(y, weights=weight, minlength=n_classes)
    factor = np.ones(n_classes)
    present = total > 0
    factor[present] = total[present][0] / total[present]
    return factor


def predict_margin(booster: xgboost.Booster, data: xgboost.DMatrix) -> np.ndarray:
    """Return the margins of the training rows, float64."""
    margin = booster.predict(data, output_margin=True, training=True)
    return np.asarray(margin, dtype=np.float64)


def boost_step(
    booster: xgboost.Booster,
    data: xgboost.DMatrix,
    iteration: int,
    weight: np.ndarray,
    scale: np.ndarray,
) -> None:
    """Add a round of trees for the weighted loss on rows that carry all labels.

    Weights w(x_i, k) are (n_samples, n_classes) and multiplied by factors s_k. With two classes and
    p = σ(margin), row i has the summed gradient and hessian of its copies (x_i, 0) and (x_i, 1):

        g_i = s_1 w_i1 (p_i − 1) + s_0 w_i0 p_i,     h_i = (s_1 w_i1 + s_0 w_i0) p_i (1 − p_i).

    With more, p = softmax(margins) and W_i = Σ_k s_k w_ik, there is one tree per class k with

        g_ik = W_i p_ik − s_k w_ik,     h_ik = 2 W_i p_ik (1 − p_ik),

    the factor 2 being XGBoost's own. Since split gains add gradients and hessians over rows, this
    is the boosting step on the rows repeated once per label, weighted: always with tree method
    ``exact``, and with ``hist`` if no feature has more distinct values than bins.
    """
    margin = predict_margin(booster, data)
    share = weight * scale
    if margin.ndim == 1:
        p = expit(margin)
        lower, upper = share[:, 0], share[:, 1]
        grad = upper * (p - 1.0) + lower * p
        hess = (upper + lower) * p * (1.0 - p)
    else:
        p = softmax(margin, axis=1)
        total = share.sum(axis=1, keepdims=True)
        grad = total * p - share
        hess = 2.0 * total * p * (1.0 - p)
    booster.boost(data, iteration, grad=grad.astype(np.float32), hess=hess.astype(np.float32))
