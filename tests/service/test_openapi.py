"""Every route behaves as its OpenAPI description says, whatever is sent."""

import json

import pytest

schemathesis = pytest.importorskip("schemathesis", minversion="4", reason="schemathesis 4 is not installed")

from hypothesis import settings  # noqa: E402
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance  # noqa: E402

from imondrian.service.changes.configuration import DEFAULTS  # noqa: E402
from imondrian.service.http.asgi import create_api  # noqa: E402
from imondrian.service.http.guard import _is_change  # noqa: E402
from imondrian.service.http.schemas import Configuration  # noqa: E402
from tests.service.serving import SMALL  # noqa: E402

DESCRIPTION = create_api(None).openapi()
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
# The number of features depends on the detector, which the schema cannot express: data that it allows can be refused.
EXCLUDED_CHECKS = [positive_data_acceptance]


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    return value.encode(errors="surrogatepass") if isinstance(value, str) else json.dumps(value).encode()


@pytest.fixture(autouse=True)
def pumps(service):
    """Create the detector that the examples name, with their features."""
    with service.client() as client:
        for detector in client.detectors():
            client.remove(detector["name"])
        client.create("pumps", ["x", "y"], **SMALL)
        client.process("pumps", [[1.0, 2.0], [1.1, 2.1]])


def test_the_service_publishes_its_openapi_description(service):
    assert json.loads(service.request("GET", "/openapi.json")[2]) == DESCRIPTION


@SCHEMA.parametrize()
@settings(max_examples=40)
def test_every_route_matches_its_description(case, service):
    if case.operation.path == "/events" and (case.query or {}).get("follow", True) in (True, "true", "1"):
        case.query = {**(case.query or {}), "follow": "false"}  # otherwise the response has no end
    case.call_and_validate(base_url=service.address, excluded_checks=EXCLUDED_CHECKS)


@SCHEMA.include(path_regex="{name}").exclude(path="/detectors/{name}", method="DELETE").parametrize()
@settings(max_examples=40)
def test_every_route_of_an_existing_detector_matches_its_description(case, service):
    case.path_parameters = {**case.path_parameters, "name": "pumps"}
    ignored = [negative_data_rejection] if has_unknown_query(case) else []
    case.call_and_validate(base_url=service.address, excluded_checks=EXCLUDED_CHECKS + ignored)


def has_unknown_query(case):
    """Return True if a request has a query parameter that its route does not define: the service ignores these."""
    operation = DESCRIPTION["paths"][case.operation.path][case.operation.method]
    known = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"}
    return not set(case.query or {}) <= known


@pytest.mark.parametrize("path", DESCRIPTION["paths"])
def test_exactly_the_routes_that_change_a_detector_have_the_status_504(path):
    for method, operation in DESCRIPTION["paths"][path].items():
        assert ("504" in operation["responses"]) == _is_change({"method": method.upper(), "path": path})


BODIES = DESCRIPTION["paths"]["/detectors/{name}/points"]["post"]["requestBody"]["content"]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, body in BODIES.items() for name in body["examples"]])
def test_every_example_of_points_is_accepted(service, kind, name):
    example = BODIES[kind]["examples"][name]["value"]
    body = example.encode() if isinstance(example, str) else example
    assert service.request("POST", "/detectors/pumps/points", body, {"Content-Type": kind})[0] == 200


def test_documented_defaults_match_the_configuration():
    assert Configuration(features=["x"]).model_dump() == {"features": ["x"], **DEFAULTS}


@pytest.mark.parametrize("path", DESCRIPTION["paths"])
def test_every_route_has_a_description_and_an_example_body(path):
    for operation in DESCRIPTION["paths"][path].values():
        assert operation["description"]
        body = json.dumps(operation.get("requestBody", "examples"))
        assert "examples" in body or "binary" in body
