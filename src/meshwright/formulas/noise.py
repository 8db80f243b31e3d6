"""Gradient noise scale: how large a batch still buys steps, from two gradient norms."""

from __future__ import annotations

from meshwright.formulas.numeric import Count
from meshwright.formulas.registry import formula

MCCANDLISH = "McCandlish et al. 2018, arXiv 1812.06162"


@formula("noise.signal", source=MCCANDLISH + ", appendix A.1", equation="|G|² = (B |g_B|² - b |g_b|²) / (B - b)")
def gradient_signal(large: Count, small: Count, large_sq: Count, small_sq: Count) -> Count:
    """Squared norm of the true gradient, estimated without bias from gradients over two batch sizes.

    Parameters
    ----------
    large, small : samples B and b behind the two gradients, B > b. [1]
    large_sq, small_sq : squared norms of the two gradients. [1]

    Notes
    -----
    Ignores: that both are noisy; average over many steps before dividing.

    Examples
    --------
    >>> gradient_signal(8, 2, 1.5, 3.0)  # |G|² = 1, tr(Σ) = 4: 1 + 4/8 and 1 + 4/2
    1.0
    """
    return (large * large_sq - small * small_sq) / (large - small)


@formula("noise.trace", source=MCCANDLISH + ", appendix A.1", equation="tr(Σ) = (|g_b|² - |g_B|²) / (1/b - 1/B)")
def gradient_noise(large: Count, small: Count, large_sq: Count, small_sq: Count) -> Count:
    """Trace of the covariance of one sample's gradient, estimated without bias.

    Parameters
    ----------
    large, small, large_sq, small_sq : as in `gradient_signal`. [1]

    Examples
    --------
    >>> gradient_noise(8, 2, 1.5, 3.0)
    4.0
    """
    return (small_sq - large_sq) / (1 / small - 1 / large)


@formula("noise.simple_scale", source=MCCANDLISH + ", equation 2.9", equation="B_simple = tr(Σ) / |G|²")
def simple_noise_scale(trace: Count, signal: Count) -> Count:
    """Batch at which noise and signal of the gradient are of one size: a cheap stand-in for the critical batch.

    Parameters
    ----------
    trace : tr(Σ). [1]
    signal : |G|². [1]

    Notes
    -----
    Assumes: a Hessian that is a multiple of the identity.

    Examples
    --------
    >>> simple_noise_scale(4.0, 1.0)
    4.0
    """
    return trace / signal


@formula("noise.steps", source=MCCANDLISH + ", equation 2.7", equation="S = S_min (1 + B_crit / B)")
def steps_at_batch(batch: Count, critical: Count, fewest_steps: Count) -> Count:
    """Optimizer steps to a given loss at a batch size.

    Parameters
    ----------
    batch : B. [1]
    critical : B_crit. [1]
    fewest_steps : steps with an infinite batch, S_min. [1]

    Examples
    --------
    >>> steps_at_batch(256, 256, 1000.0)  # at the critical batch, twice the fewest steps
    2000.0
    """
    return fewest_steps * (1 + critical / batch)


@formula("noise.examples", source=MCCANDLISH + ", equation 2.7", equation="E = E_min (1 + B / B_crit)")
def examples_at_batch(batch: Count, critical: Count, fewest_examples: Count) -> Count:
    """Samples to a given loss at a batch size.

    Parameters
    ----------
    batch : B. [1]
    critical : B_crit = E_min / S_min. [1]
    fewest_examples : samples with an infinitesimal batch, E_min. [1]

    Examples
    --------
    >>> examples_at_batch(256, 256, 256_000.0)
    512000.0
    """
    return fewest_examples * (1 + batch / critical)


@formula("noise.sgd_learning_rate", source=MCCANDLISH + ", equation 2.6", equation="ε(B) = ε_max / (1 + B_noise / B)")
def sgd_learning_rate(batch: Count, noise_scale: Count, largest: Count) -> Count:
    """Best learning rate of SGD at a batch size: linear in B while the batch is small, flat once noise is gone.

    Parameters
    ----------
    batch : B. [1]
    noise_scale : B_noise. [1]
    largest : best learning rate of the noiseless gradient, ε_max. [1]

    Notes
    -----
    Adam follows a power of B between 0.5 and 1 instead.

    Examples
    --------
    >>> sgd_learning_rate(256, 256, 0.1)
    0.05
    """
    return largest / (1 + noise_scale / batch)
