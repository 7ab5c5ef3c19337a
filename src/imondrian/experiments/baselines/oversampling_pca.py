"""Over-sampling PCA by the power method (osPCA1): copies of an anomalous row turn the first principal direction.

`principal_direction` has the full references of [Yeh2009] and [Lee2013].
"""

from imondrian.engine.jit import Array
from imondrian.experiments.baselines.principal_direction import DirectionDetector, Targets, principal_directions


class OversamplingPCA(DirectionDetector):
    """Scores a row by how far its copies turn the first principal direction, computed by the power method.

    The method is that of [Yeh2009]. Let A be the matrix of the n rows, m their mean and Q = A^T A / n their second
    moments. Together with r n copies of a target x, the rows have the mean m' = (m + r x) / (1 + r) and the covariance
    (Q + r x x^T) / (1 + r) - m' m'^T; the score is 1 - |cosine| of the angle between its first eigenvector and that of
    Q - m m^T. Rows are not actually copied. Unlike [Yeh2009], the power method starts slightly off the old direction
    and runs until no component of the direction changes by more than 1e-12 (at most 1000 steps); the authors' program
    stops when the eigenvalue converges (at most 500 steps).

    A learned row is compared with all other rows, both after `fit` and after `extend`: it is removed, then
    over-sampled, so that its score is the one it would have as a new row. The sources differ here. [Ma2020] says that
    it scores the rows of its first stage by a "decremental PCA approach with oversampling"; its program computes these
    scores in the same way as this class, and stores them; [Lee2013] uses over-sampling instead of decremental PCA
    (removal without copies), and its authors' program leaves the target among the n rows. Whether the target is one of
    the n rows hardly changes its score, unless the row is so distant that it determines the direction by itself.

    Parameters
    ----------
    ratio : float, default=0.1
        The r above, greater than 0 and at most 1: copies as a share of the rows that a row is compared with.

    Examples
    --------
    >>> from imondrian.experiments.baselines.oversampling_pca import OversamplingPCA
    >>> rows = [[-2.0, -0.1], [-1.0, 0.1], [0.0, 0.0], [1.0, -0.1], [2.0, 0.1]]
    >>> detector = OversamplingPCA(ratio=0.2).fit(rows)
    >>> detector.score([[3.0, 0.1], [1.0, 2.0]]).round(3)  # in the direction of the rows, and off it
    array([0.   , 0.022])
    >>> detector.extend([[1.0, 2.0]]).learned_scores().round(3)  # the last score is the same as before learning
    array([0.003, 0.   , 0.   , 0.002, 0.028, 0.022])
    """

    def _turned(self, targets: Targets, before: Array) -> Array:
        copies = targets.n_others * self.ratio / (1.0 + self.ratio)  # reduced, because the copies move the mean
        directions, _ = principal_directions(targets, targets.removal_weight + copies * targets.stretch**2)
        return directions
