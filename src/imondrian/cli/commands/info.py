"""`imondrian info`: show the content of a model file."""

from pathlib import Path
from typing import Any

from imondrian.alarms.thresholds import stream_rule
from imondrian.cli.console import Console, escaped
from imondrian.cli.detect.summary import describe_rule
from imondrian.cli.model_loading import load_model_file
from imondrian.cli.options import ConsoleOptions
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.key_store import is_fleet_file
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.model_files import Model
from imondrian.stream.detector import StreamDetector


def info(path: str, console_options: ConsoleOptions) -> None:
    """Load a model file, which checks it, and print its content; the detectors of a fleet's keys are not checked."""
    described = _fleet_facts(path) if Path(path).is_file() and is_fleet_file(path) else _facts(load_model_file(path))
    facts = {"file": path, "bytes": Path(path).stat().st_size, **described}

    def print_on(console: Any) -> None:
        for name, value in facts.items():
            console.print(f"{name.replace('_', ' '):<16} {escaped(_as_text(value))}")

    Console(console_options).print_result(facts, print_on)


def _facts(model: Model) -> dict[str, Any]:
    if isinstance(model, MondrianForest):
        return {"type": "forest", **_forest_facts(model), "parameters": _as_json_values(model.parameters())}
    if isinstance(model, StreamDetector):
        return {
            "type": "stream detector",
            **_forest_facts(model.forest),
            "features": model.feature_names,
            "parameters": model.parameters,
            "threshold": model.threshold_score,
            "rule": describe_rule(stream_rule(model.threshold), "latest rows"),
            "incidents": model.n_incidents,
            "rows_seen": model.n_seen,
            "rows_skipped": model.n_skipped,
            "drifts": model.n_drifts,
        }
    return {
        "type": "estimator",
        **_forest_facts(model.forest),
        "features": model.feature_names,
        "parameters": _as_json_values(model.parameters),
        "threshold": model.stored_threshold,
        "rule": describe_rule(model.rule),
    }


def _fleet_facts(path: str) -> dict[str, Any]:
    with Fleet.load(path) as fleet:
        return {
            "type": "fleet",
            "keys": len(fleet),
            "rows_seen": fleet.n_rows,
            "features": fleet.feature_names,
            "parameters": fleet.parameters | {"rules": fleet.rules.as_json_value()},
            "rule": describe_rule(stream_rule(fleet.threshold), "latest rows of a key"),
            "latest_incidents": len(fleet.incidents),
            "open_incidents": sum(incident.is_open for _, incident in fleet.incidents),
            "keys_dropped": fleet.n_dropped,
            "bytes_per_key": fleet.bytes_per_key,
        }


def _forest_facts(forest: MondrianForest) -> dict[str, Any]:
    sizes = [int(tree.population[0]) if len(tree.population) else 0 for tree in forest.trees()]
    return {
        "n_trees": forest.n_trees,
        "n_features": forest.n_features,
        "points": forest.n_points,
        "smallest_tree": min(sizes, default=0),
        "largest_tree": max(sizes, default=0),
        "bytes_in_memory": forest.n_bytes,
    }


def _as_json_values(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in parameters.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
