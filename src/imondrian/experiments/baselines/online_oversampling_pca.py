"""Online over-sampling PCA by least squares (osPCA2): the turned direction in one step instead of the power method.

[Lee2013] is spelled out in `principal_direction`.
"""

import numpy as np

from imondrian.engine.jit import Array
from imondrian.experiments.baselines.principal_direction import DirectionDetector, Targets


class OnlineOversamplingPCA(DirectionDetector):
    """Scores by how far copies of a row turn the first principal direction, found by least squares.

    Algorithm 1 of [Lee2013]. Let d_i be the deviations of n rows from their mean, d that of a target, u the first
    principal direction, y_i = u^T d_i and y = u^T d. With the y held fixed, the v that best gives back the d_i as
    y_i v, and r n times d as y v, is (b sum y_i d_i + y d) / (b sum y_i^2 + y^2) with b = 1 / (n r). The score is
    1 - |cosine| of the angle between u and v. The sums are made once; a target costs as many operations as there are
    features. This v is also where one step of the power method leads from u if the mean stays: where the first two
    principal axes are about equally long it falls far short of `OversamplingPCA`, and a target square to u turns
    nothing, however far it lies.

    Differs: mean and second moments are kept, and u is the first eigenvector, where [Lee2013] moves u alone with every
    row by the same least squares; so rows may come in any order, one by one or at once. All rows are learned, where
    [Lee2013] would keep out those it finds odd. The mean stays as it is without copies; the authors' program takes d
    from the mean with them, which comes to the same as a ratio of r / (1 + r)^2.

    A row learned is held against all others, as in `OversamplingPCA`.

    Parameters
    ----------
    ratio : float, default=0.1
        The r above, greater than 0 and at most 1: copies as a share of the rows that a row is held against.

    Examples
    --------
    >>> from imondrian.experiments.baselines.online_oversampling_pca import OnlineOversamplingPCA
    >>> rows = [[-2.0, -0.1], [-1.0, 0.1], [0.0, 0.0], [1.0, -0.1], [2.0, 0.1]]
    >>> detector = OnlineOversamplingPCA(ratio=0.2).fit(rows)
    >>> detector.score([[3.0, 0.1], [1.0, 2.0]]).round(3)  # along the rows, and aside
    array([0.   , 0.017])
    >>> detector.extend([[1.0, 2.0]]).learned_scores().round(3)  # the last one as when it was new
    array([0.002, 0.   , 0.   , 0.002, 0.02 , 0.017])
    """

    def _turned(self, targets: Targets, before: Array) -> Array:
        rows = targets.coordinates
        projection = (rows * before).sum(axis=1, keepdims=True)
        sums = targets.scatter * before + targets.left_out * projection * rows
        copies = targets.n_others * self.ratio
        turned = sums + copies * targets.stretch**2 * projection * rows  # v but for its length
        length = np.linalg.norm(turned, axis=1, keepdims=True)
        return turned / np.where(length > 0.0, length, 1.0)
