"""Export models to ONNX: `imondrian.onnx.export`. Other languages can then score rows without Python."""

import json
import os
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from imondrian import InvalidInputError, MondrianForest, StreamDetector, __version__
from imondrian.base.files import atomic_write
from imondrian.engine.frozen import freeze
from imondrian.engine.jit import Array
from imondrian.engine.plain_tree import Tree
from imondrian.engine.score_formula import depths_to_scores
from imondrian.forest.inputs import as_points_with_gaps
from imondrian.model_files import as_fitted_model
from imondrian.models.fitted_model import FittedModel

INPUT, SCORE, LABEL = "X", "anomaly_score", "is_anomaly"  # names of the input and the outputs
_DTYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
_IR_VERSION, _OPSET, _ML_OPSET = 8, 13, 3  # old versions, which many runtimes can read
# an ONNX file has at most 2 GiB; half of the nodes are leaves, and float32 is exact for leaf numbers up to 2 ** 24
_MAX_NODES = 20_000_000
_DEEPEST = np.float64(2000.0)  # a mean depth that has the lowest score
_LOWEST_SCORE, _HIGHEST_SCORE = 2.0**-1022, 1.0 - 2.0**-53  # as in engine/score_formula.py


def export(
    model: Any, path: str | os.PathLike[str], *, dtype: str = "float32", rows: npt.ArrayLike | None = None
) -> None:
    """Write a model to an ONNX file, with which ONNX Runtime scores rows in Python, Java, C++, C#, JavaScript or Rust.

    The file has one input, `X` of shape (n_rows, n_features), and two outputs of shape (n_rows,): `anomaly_score`, with
    the type of the input, and `is_anomaly`, boolean. Missing numbers (NaN) are replaced as in the model, but by medians
    for a detector with `missing="previous"`. A row with an infinite value, without any value, or with a missing number
    that the model does not replace gets the score NaN and is not an anomaly.

    Parameters
    ----------
    model : IsolationMondrianForest, imondrian.pyod.IMForest, MondrianForest or StreamDetector
        A fitted model with `kind="depth"` and without categorical features. For a detector, the current state is
        exported; the file only scores rows and does not learn them. The threshold of a MondrianForest is 0.5.
    path : str or path-like
        The file to write. It is written under a temporary name and then renamed, so that it is never incomplete.
    dtype : {"float32", "float64"}, default="float32"
        Type of the input. With "float32", rows are rounded, and cuts are moved such that every point that the model
        holds stays on the same side of each cut. With "float64", nothing is rounded.
    rows : array of shape (n_rows, n_features), optional
        Further rows that must stay on the same side of every cut if they are rounded to float32, for example those that
        the model was fitted on: a tree holds only a sample of them.

    Raises
    ------
    InvalidInputError
        If the model cannot be exported: another kind of score, categorical features or indicators of missing values,
        shingles, the preset "series", or values outside the range of float32.

    Warns
    -----
    UserWarning
        If the model separates values that are the same number in float32. Then use `dtype="float64"`.

    Examples
    --------
    >>> import numpy as np
    >>> import imondrian.onnx
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = imondrian.IsolationMondrianForest(kind="depth", random_state=0).fit(X)
    >>> path = getfixture("tmp_path") / "model.onnx"
    >>> imondrian.onnx.export(model, path)

    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(path)
    >>> scores, labels = session.run(None, {"X": np.array([[0.0, 0.0], [5.0, 5.0]], np.float32)})
    >>> labels.tolist()
    [False, True]
    """
    content = to_onnx(model, dtype=dtype, rows=rows).SerializeToString()
    with atomic_write(path) as file:
        file.write(content)


def to_onnx(model: Any, *, dtype: str = "float32", rows: npt.ArrayLike | None = None) -> onnx.ModelProto:
    """Return the content of the file that `export` writes; the parameters are the same."""
    if dtype not in _DTYPES:
        raise InvalidInputError(f"dtype must be one of {', '.join(_DTYPES)}, but is {dtype!r}.")
    fitted = _exportable(model)
    parts = fitted.forest.while_unchanged(lambda: _parts(fitted))
    if dtype == "float32":
        others = [] if parts.fill is None else [parts.fill[None]]
        others += [] if rows is None else [as_points_with_gaps(rows, fitted.n_features)]
        parts = parts._replace(trees=_with_float32_cuts(parts.trees, others, fitted.feature_names))
    graph = _graph(parts, fitted.n_features, dtype)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="imondrian")
    proto.producer_version = __version__
    helper.set_model_props(proto, _properties(fitted, parts))
    onnx.checker.check_model(proto)
    return proto


# -- models -----------------------------------------------------------------------------------------------------------


def _exportable(model: Any) -> FittedModel:
    """Return the fitted model of a model of any type; raise InvalidInputError if ONNX cannot express it."""
    if isinstance(model, (MondrianForest, StreamDetector, FittedModel)):
        fitted = as_fitted_model(model, "The model")
    elif hasattr(model, "fitted_model"):
        fitted = model.fitted_model()
    else:
        raise InvalidInputError(
            f"Only an IsolationMondrianForest, IMForest, MondrianForest or StreamDetector can be exported, but not"
            f" {model!r:.200}."
        )
    if fitted.kind != "depth":
        raise InvalidInputError(
            f"Only models with kind='depth' can be exported, but kind is {fitted.kind!r}: ONNX has no operator for"
            " distances to the box of a node. Fit the model with kind='depth'."
        )
    if fitted.categorical:
        names = [fitted.feature_names[j] if fitted.feature_names else j for j in fitted.categorical]
        raise InvalidInputError(
            f"Only models without categorical features can be exported, but {names} are categorical."
        )
    if fitted.indicators:
        raise InvalidInputError(
            "Models with missing='indicator' cannot be exported: indicators are categories. Use missing='median'."
        )
    if fitted.forest.n_points == 0:
        raise InvalidInputError("The model holds no points: fit it before it is exported.")
    return fitted


class _Parts(NamedTuple):
    """The parts of a model that are exported."""

    trees: list[Tree]  # a tree without points is a single leaf
    depths: list[Array]  # the path length of each leaf, relative to c(n) for a tree of n points
    fill: Array | None  # replaces missing numbers; None if rows with missing numbers have no score
    threshold: float

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.trees)


def _parts(fitted: FittedModel) -> _Parts:
    """Return the parts of a model, whose forest must not change meanwhile."""
    arrays, _ = fitted.forest.state()
    n_nodes = int(2 * arrays.heads["n_leaves"].sum())
    if n_nodes > _MAX_NODES:
        raise InvalidInputError(
            f"The model has {n_nodes:,} nodes, but an ONNX file holds at most {_MAX_NODES:,}: set max_samples."
        )
    trees = [tree if tree.left.size else _EMPTY_TREE for tree in fitted.forest.trees()]
    frozen = freeze(arrays)  # nodes are numbered as in Tree: breadth first, and an empty tree is one leaf
    by_tree = np.split(frozen.depths, frozen.roots[1:].astype(np.int64))
    depths = [each[tree.left < 0] for tree, each in zip(trees, by_tree, strict=True)]
    fill = None if fitted.missing == "raise" else np.asarray(fitted.fill, np.float64)
    return _Parts(trees, depths, fill, fitted.threshold)


_NONE = np.array([-1])
_EMPTY_TREE = Tree(
    parent=_NONE,
    left=_NONE,
    right=_NONE,
    depth=np.array([0]),
    population=np.array([0]),
    split_feature=_NONE,
    split_value=np.array([np.nan]),
    split_time=np.array([np.inf]),
    lower=np.full((1, 1), np.nan),
    upper=np.full((1, 1), np.nan),
)


def _properties(fitted: FittedModel, parts: _Parts) -> dict[str, str]:
    """Return the metadata of the file."""
    names = {} if fitted.feature_names is None else {"feature_names": json.dumps(fitted.feature_names)}
    return {"kind": "depth", "threshold": repr(float(parts.threshold)), "n_trees": str(parts.n_trees), **names}


# -- cuts as float32 --------------------------------------------------------------------------------------------------


def _with_float32_cuts(trees: list[Tree], others: list[Array], names: list[str] | None) -> list[Tree]:
    """Round the cuts to float32, such that points keep their side when they are rounded to float32.

    Rounding preserves the order of numbers. So if a is the largest value below a cut and b the smallest one not below
    it, any float32 cut in (float32(a), float32(b)] separates the rounded values as before. Here, a and b are values of
    the points of all trees and of `others`. If they are the same number in float32, only the points of the tree itself
    are considered.
    """
    values = _values_by_feature(trees, others)
    limit = np.finfo(np.float32).max
    for j, column in enumerate(values):
        if np.abs(column[[0, -1]]).max() > limit:
            extreme = float(max(column[[0, -1]], key=abs))
            raise InvalidInputError(
                f"{_name(j, names)} has the value {extreme!r}, which float32 cannot represent: use dtype='float64'."
            )
    rounded, merged = zip(*(_float32_cuts(tree, values) for tree in trees), strict=True)
    if any(len(of_tree.features) for of_tree in merged):
        _warn_of_merged_values(merged, sum(int(np.count_nonzero(tree.left >= 0)) for tree in trees), names)
    return list(rounded)


def _values_by_feature(trees: list[Tree], others: list[Array]) -> list[Array]:
    """Return the different values of each feature in the points of all trees and in further rows, in order."""
    points = [*(tree.lower[tree.left < 0] for tree in trees if tree is not _EMPTY_TREE), *others]
    columns = (np.unique(np.concatenate(column)) for column in zip(*(rows.T for rows in points), strict=True))
    return [column[~np.isnan(column)] for column in columns]


class _Merged(NamedTuple):
    """Cuts between two values that are the same number in float32: the features, and the values."""

    features: Array
    lower: Array
    upper: Array


def _float32_cuts(tree: Tree, values: list[Array]) -> tuple[Tree, _Merged]:
    """Return a tree with rounded cuts, and its cuts between values that are equal in float32."""
    inner = np.flatnonzero(tree.left >= 0)
    features, cuts = tree.split_feature[inner], tree.split_value[inner]
    lower, upper = np.empty(inner.size), np.empty(inner.size)
    for j in np.unique(features):
        on_feature = features == j
        above = np.searchsorted(values[j], cuts[on_feature])
        lower[on_feature], upper[on_feature] = values[j][above - 1], values[j][above]
    own_lower, own_upper = tree.upper[tree.left[inner], features], tree.lower[tree.right[inner], features]
    rounded = _clipped_between(_rounded_up(cuts), own_lower, own_upper)
    rounded = _clipped_between(rounded, lower, upper)
    split_value = tree.split_value.copy()
    split_value[inner] = rounded
    merged = lower.astype(np.float32) == upper.astype(np.float32)
    return tree._replace(split_value=split_value), _Merged(features[merged], lower[merged], upper[merged])


def _rounded_up(cuts: Array) -> Array:
    """Return the smallest float32 number not below each cut; no float32 number changes sides."""
    nearest = cuts.astype(np.float32)
    return np.where(nearest < cuts, np.nextafter(nearest, np.float32(np.inf)), nearest)


def _clipped_between(cuts: Array, lower: Array, upper: Array) -> Array:
    """Clip cuts to float32 numbers above `lower` and not above `upper`; if there is none, a cut remains unchanged."""
    low, high = lower.astype(np.float32), upper.astype(np.float32)
    return np.where(low < high, np.clip(cuts, np.nextafter(low, np.float32(np.inf)), high), cuts)


def _warn_of_merged_values(merged: tuple[_Merged, ...], n_cuts: int, names: list[str] | None) -> None:
    """Warn of cuts that float32 cannot express, and name the feature that has the largest number of them."""
    features = np.concatenate([of_tree.features for of_tree in merged])
    counts = np.bincount(features)
    j = int(counts.argmax())
    i = int(np.argmax(features == j))
    lower, upper = (
        np.concatenate(bounds) for bounds in zip(*((each.lower, each.upper) for each in merged), strict=True)
    )
    a, b = float(lower[i]), float(upper[i])
    warnings.warn(
        f"{features.size:,} of {n_cuts:,} cuts separate values that are the same number in float32, for"
        f" example {a!r} and {b!r} of {_name(j, names)}, the feature with the most such cuts. The scores of rows"
        " with such values may differ from those of the model: use dtype='float64'.",
        stacklevel=4,
    )


def _name(j: int, names: list[str] | None) -> str:
    return f"feature {j}" if names is None else f"feature {names[j]!r}"


# -- the graph --------------------------------------------------------------------------------------------------------


def _graph(parts: _Parts, n_features: int, dtype: str) -> onnx.GraphProto:
    """Return the computation: replaced gaps, the mean relative depth, the score, the label."""
    element_type = _DTYPES[dtype]
    nodes, constants = zip(*_steps(parts, dtype), strict=True)
    return helper.make_graph(
        nodes,
        "isolation_mondrian_forest",
        [helper.make_tensor_value_info(INPUT, element_type, ["n_rows", n_features])],
        [
            helper.make_tensor_value_info(SCORE, element_type, ["n_rows"]),
            helper.make_tensor_value_info(LABEL, TensorProto.BOOL, ["n_rows"]),
        ],
        initializer=[constant for step in constants for constant in step],
    )


_Step = tuple[onnx.NodeProto, list[onnx.TensorProto]]


def _steps(parts: _Parts, dtype: str) -> Iterator[_Step]:
    """Yield the nodes of the graph in order, each with its constants.

    ONNX Runtime returns sums over the trees in float32, in an order that depends on the number of threads. Therefore
    the ensemble only finds the leaf in each tree. The depths of the leaves are added here, in double precision and from
    the first tree to the last, as in the library: the sums are the same bit for bit.
    """
    real, fill = np.dtype(dtype), parts.fill
    yield _step("IsNaN", [INPUT], "is_missing")
    yield _step("IsInf", [INPUT], "is_infinite")
    yield _step("Cast", ["is_missing"], "missing", to=TensorProto.FLOAT)
    yield _step("Cast", ["is_infinite"], "infinite", to=TensorProto.FLOAT)
    # a row has no score if a value is infinite, if all are missing, or if one is missing and gaps are not replaced
    yield _step("ReduceMax", ["infinite"], "any_infinite", axes=[1], keepdims=0)
    refuse = "ReduceMax" if fill is None else "ReduceMin"
    yield _step(refuse, ["missing"], "refused_gaps", axes=[1], keepdims=0)
    yield _step("Max", ["any_infinite", "refused_gaps"], "refused")
    yield _step("Cast", ["refused"], "is_refused", to=TensorProto.BOOL)
    replacement = np.zeros(1, real) if fill is None else fill.astype(real)
    yield _step("Where", ["is_missing", "fill", INPUT], "filled", fill=replacement)
    yield _step("TreeEnsembleRegressor", ["filled"], "leaf_numbers", domain="ai.onnx.ml", **_ensemble(parts, dtype))
    yield _step("Cast", ["leaf_numbers"], "leaves", to=TensorProto.INT32)
    yield _step("Gather", ["leaf_depths", "leaves"], "depths", leaf_depths=np.concatenate(parts.depths))
    yield _step("CumSum", ["depths", "tree_axis"], "sums", tree_axis=np.array(1))
    yield _step("Gather", ["sums", "last"], "sum", last=np.array(parts.n_trees - 1), axis=1)
    yield _step("Div", ["sum", "n_trees"], "depth", n_trees=np.array(float(parts.n_trees)))
    yield _step("Neg", ["depth"], "exponent")
    yield _step("Pow", ["two", "exponent"], "power", two=np.array(2.0))
    limits = {"lowest": np.array(_LOWEST_SCORE), "highest": np.array(_HIGHEST_SCORE)}
    yield _step("Clip", ["power", *limits], "score", domain="", **limits)
    yield _step("Where", ["is_refused", "no_score", "score"], "score_or_nan", no_score=np.array(np.nan))
    yield _step("Cast", ["score_or_nan"], SCORE, to=_DTYPES[dtype])
    yield _step("Less", ["depth", "limit"], "is_shallow", limit=np.array(_depth_limit(parts.threshold)))
    yield _step("Not", ["is_refused"], "is_accepted")
    yield _step("And", ["is_shallow", "is_accepted"], LABEL)


def _step(operator: str, inputs: list[str], output: str, domain: str = "", **values: Any) -> _Step:
    """Return a node and its constants; values named like an input are constants, the others are attributes."""
    attributes = {name: value for name, value in values.items() if name not in inputs}
    constants = [numpy_helper.from_array(values[name], name) for name in inputs if name in values]
    return helper.make_node(operator, inputs, [output], domain=domain, **attributes), constants


def _depth_limit(threshold: float) -> float:
    """Return the mean depth below which a row is an anomaly: the smallest one whose score is not above the threshold.

    The threshold is often the score of a row, and the scores of a few other rows may differ from it by rounding errors
    only. So the labels are those of the library only if the limit is exact. A limit computed with the logarithm would
    not be.
    """
    if threshold < _LOWEST_SCORE:
        return np.inf
    # non-negative floats have the same order as their bits read as integers, so bisection finds the exact limit
    bits = bisect_left(range(_DEEPEST.view(np.int64) + 1), True, key=lambda each: _score_of_bits(each) <= threshold)
    return float(np.int64(bits).view(np.float64))


def _score_of_bits(bits: int) -> float:
    """Return the score of the mean depth that has these bits."""
    depths = np.array([bits], np.int64).view(np.float64)
    depths_to_scores(depths)
    return float(depths[0])


def _ensemble(parts: _Parts, dtype: str) -> dict[str, Any]:
    """Return the attributes of TreeEnsembleRegressor, which has one output per tree: the number of the leaf."""
    trees = parts.trees
    sizes = [tree.left.size for tree in trees]
    is_leaf = np.concatenate([tree.left < 0 for tree in trees])
    tree_ids, node_ids = np.repeat(np.arange(len(trees)), sizes), np.concatenate([np.arange(n) for n in sizes])
    integers = {
        "nodes_treeids": tree_ids,
        "nodes_nodeids": node_ids,
        "nodes_featureids": np.maximum(np.concatenate([tree.split_feature for tree in trees]), 0),
        "nodes_truenodeids": np.maximum(np.concatenate([tree.left for tree in trees]), 0),
        "nodes_falsenodeids": np.maximum(np.concatenate([tree.right for tree in trees]), 0),
        "target_treeids": tree_ids[is_leaf],
        "target_nodeids": node_ids[is_leaf],
        "target_ids": tree_ids[is_leaf],
    }
    numbers = {
        "nodes_values": np.where(is_leaf, 0.0, np.concatenate([tree.split_value for tree in trees])),
        "target_weights": np.arange(np.count_nonzero(is_leaf), dtype=np.float64),
    }
    if dtype == "float64":  # numbers in double precision are tensors
        reals = {f"{name}_as_tensor": numpy_helper.from_array(each) for name, each in numbers.items()}
    else:
        reals = {name: each.astype(np.float32) for name, each in numbers.items()}
    return {
        **{name: each.tolist() for name, each in integers.items()},
        **reals,
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LT").tolist(),
        "n_targets": len(trees),
        "post_transform": "NONE",
    }
