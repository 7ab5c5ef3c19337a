"""Over-sampling PCA by the power method (osPCA1): a row is odd if copies of it turn the first principal direction.

[Yeh2009] and [Lee2013] are spelled out in `principal_direction`.
"""

from imondrian.engine.jit import Array
from imondrian.experiments.baselines.principal_direction import DirectionDetector, Targets, principal_directions


class OversamplingPCA(DirectionDetector):
    """Scores by how far copies of a row turn the first principal direction, found by the power method.

    [Yeh2009]. n rows with mean m and second moments Q = A^T A / n, together with r n copies of a target x, have
    the mean m' = (m + r x) / (1 + r) and the covariance (Q + r x x^T) / (1 + r) - m' m'^T; the score is 1 - |cosine| of
    the angle between its first eigenvector and that of Q - m m^T. No row is copied for it. Differs: the power method
    starts a little beside the old direction, and runs until the direction stays to 1e-12 (at most 1000 steps) where
    the authors' program runs until the eigenvalue does (at most 500).

    A row learned is held against all others, after `fit` and after `extend` alike: taken out, then over-sampled, so
    that its score is the one it would have as a new row. The sources differ here. [Ma2020] scores the rows of its first
    stage by "decremental PCA approach with oversampling", which its program does as here, and keeps the scores;
    [Lee2013] has over-sampling in the place of decremental PCA (leaving out, no copies), and its authors' program
    leaves the target among the n rows. Between those two ways lies one row of n, except for a row so far off that it
    makes the direction by itself.

    Parameters
    ----------
    ratio : float, default=0.1
        The r above, greater than 0 and at most 1: copies as a share of the rows that a row is held against.

    Examples
    --------
    >>> from imondrian.experiments.baselines.oversampling_pca import OversamplingPCA
    >>> rows = [[-2.0, -0.1], [-1.0, 0.1], [0.0, 0.0], [1.0, -0.1], [2.0, 0.1]]
    >>> detector = OversamplingPCA(ratio=0.2).fit(rows)
    >>> detector.score([[3.0, 0.1], [1.0, 2.0]]).round(3)  # along the rows, and aside
    array([0.   , 0.022])
    >>> detector.extend([[1.0, 2.0]]).learned_scores().round(3)  # the last one as when it was new
    array([0.003, 0.   , 0.   , 0.002, 0.028, 0.022])
    """

    def _turned(self, targets: Targets, before: Array) -> Array:
        copies = targets.n_others * self.ratio / (1.0 + self.ratio)  # fewer than there are: the mean goes with them
        directions, _ = principal_directions(targets, targets.left_out + copies * targets.stretch**2)
        return directions
