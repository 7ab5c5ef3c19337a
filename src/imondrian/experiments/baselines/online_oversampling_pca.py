"""Online over-sampling PCA by least squares (osPCA2): the new direction in one step, without the power method.

`principal_direction` has the full reference of [Lee2013].
"""

import numpy as np

from imondrian.engine.jit import Array
from imondrian.experiments.baselines.principal_direction import DirectionDetector, Targets


class OnlineOversamplingPCA(DirectionDetector):
    """Scores a row by how far its copies turn the first principal direction, computed by least squares.

    Algorithm 1 of [Lee2013]. Let d_i be the deviations of n rows from their mean, d that of the target (the row to be
    scored), u the first principal direction, y_i = u^T d_i and y = u^T d. For fixed y_i and y, the v that minimizes the
    sum of |d_i - y_i v|^2 plus r n |d - y v|^2 is (b sum y_i d_i + y d) / (b sum y_i^2 + y^2) with b = 1 / (n r). The
    score is 1 - |cosine| of the angle between u and v. The sums are computed once; given u, and the coordinates of d
    along the principal axes, a target costs O(n_features) operations. v is also the result of one step of the power
    method from u with a constant mean: if the first two principal axes are about equally long, v is far from the
    direction of `OversamplingPCA`. A target orthogonal to u turns nothing, however distant it is.

    Differences: here the mean and second moments are stored, and u is the first eigenvector, so rows may arrive in any
    order, one by one or at once. [Lee2013] stores only u, and updates it with every row by the same least squares. Here
    all rows are learned; [Lee2013] would exclude rows that it finds anomalous. Here the mean does not include the
    copies; the authors' program measures d from the mean with copies, which is equivalent to a ratio of r / (1 + r)^2.

    A learned row is compared with all others, as in `OversamplingPCA`.

    Parameters
    ----------
    ratio : float, default=0.1
        The r above, greater than 0 and at most 1: copies as a share of the rows that a row is compared with.

    Examples
    --------
    >>> from imondrian.experiments.baselines.online_oversampling_pca import OnlineOversamplingPCA
    >>> rows = [[-2.0, -0.1], [-1.0, 0.1], [0.0, 0.0], [1.0, -0.1], [2.0, 0.1]]
    >>> detector = OnlineOversamplingPCA(ratio=0.2).fit(rows)
    >>> detector.score([[3.0, 0.1], [1.0, 2.0]]).round(3)  # in the direction of the rows, and off it
    array([0.   , 0.017])
    >>> detector.extend([[1.0, 2.0]]).learned_scores().round(3)  # the last score is the same as before learning
    array([0.002, 0.   , 0.   , 0.002, 0.02 , 0.017])
    """

    def _turned(self, targets: Targets, before: Array) -> Array:
        rows = targets.coordinates
        projection = (rows * before).sum(axis=1, keepdims=True)
        sums = targets.scatter * before + targets.removal_weight * projection * rows
        copies = targets.n_others * self.ratio
        turned = sums + copies * targets.stretch**2 * projection * rows  # v, not normalised
        length = np.linalg.norm(turned, axis=1, keepdims=True)
        return turned / np.where(length > 0.0, length, 1.0)
