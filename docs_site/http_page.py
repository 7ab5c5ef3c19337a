"""Generate the reference of the HTTP service from its OpenAPI description."""

import json
from typing import Any, cast

from imondrian.service.http.asgi import create_api

Schema = dict[str, Any]


def http_routes() -> str:
    """Return a section for each route, and one for each object in the bodies of requests and responses."""
    api = create_api(cast("Any", None)).openapi()  # the registry is used only by requests
    routes = [
        _route(method, path, operation)
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    ]
    objects = [_object(name, schema) for name, schema in api["components"]["schemas"].items()]
    return "\n\n".join(["## Routes", *routes, "## Objects", *objects])


def _route(method: str, path: str, operation: Schema) -> str:
    parts = [f"### {method.upper()} {path}", operation["description"]]
    parts += _parameters(operation.get("parameters", []))
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        parts += _body(media_type, content)
    rows = [
        f"| {status} | {response['description']} | {_contents(response)} |"
        for status, response in operation["responses"].items()
    ]
    return "\n\n".join([*parts, _table("status", "meaning", "body", rows=rows)])


def _parameters(parameters: list[Schema]) -> list[str]:
    rows = [
        f"| `{each['name']}` | {each['in']} | {_type(each['schema'])}{_default(each['schema'])} "
        f"| {_text(each.get('description', ''))} |"
        for each in parameters
    ]
    return [_table("parameter", "in", "type", "meaning", rows=rows)] if rows else []


def _body(media_type: str, content: Schema) -> list[str]:
    schema = content["schema"]
    parts = [f"Body, `{media_type}`: {_type(schema)}"]
    if "properties" in schema and "title" not in schema:
        parts.append(_properties(schema))
    for name, example in content.get("examples", {}).items():
        value = example["value"]
        text = value.rstrip() if isinstance(value, str) else json.dumps(value)
        parts.append(f"Example ({name}):\n\n```json\n{text}\n```")
    return parts


def _object(name: str, schema: Schema) -> str:
    return "\n\n".join([f"### {name}", _text(schema.get("description", "")), _properties(schema)])


def _properties(schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {_type(each)}{'' if name in required else _default(each)} | {_meaning(each)} |"
        for name, each in schema.get("properties", {}).items()
    ]
    return _table("field", "type", "meaning", rows=rows)


def _meaning(schema: Schema) -> str:
    return _text(schema.get("description") or schema.get("items", {}).get("description") or "")


def _contents(response: Schema) -> str:
    return ", ".join(
        _type(content["schema"]) if content.get("schema") else f"`{media_type}`"
        for media_type, content in response.get("content", {}).items()
    )


def _type(schema: Schema) -> str:  # noqa: PLR0911
    """Return the type of a value, with a link if it is an object of its own."""
    if "$ref" in schema or schema.get("title") in _NAMED:
        name = schema.get("$ref", schema.get("title", "")).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(f'"{value}"' for value in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return _NAMES.get(schema.get("type", ""), "any value")


_NAMED = ("Configuration", "Settings")  # objects that the description of a route repeats instead of referring to them
_NAMES = {
    "string": "text",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
}


def _default(schema: Schema) -> str:
    return f", default `{json.dumps(schema['default'])}`" if schema.get("default") is not None else ""


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(*titles: str, rows: list[str]) -> str:
    return "\n".join([f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *rows]) if rows else ""
