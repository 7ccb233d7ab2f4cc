"""What is made of a JSON Schema before it is kept to."""

from typing import Any

import pytest

from parkway.text.schema import SchemaError, check_multiples, prepared

A: dict[str, Any] = {"properties": {"a": {}}}
CLOSED: dict[str, Any] = {"properties": {"a": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (A, CLOSED),
        ({"type": "object"}, {"type": "object"}),
        ({**A, "additionalProperties": True}, {**A, "additionalProperties": True}),
        ({**A, "required": ["a"]}, {**CLOSED, "required": ["a"]}),
        ({**A, "required": ["b"]}, {**A, "required": ["b"]}),
        ({"items": A}, {"items": CLOSED}),
        ({"anyOf": [A, {"prefixItems": [A]}]}, {"anyOf": [CLOSED, {"prefixItems": [CLOSED]}]}),
        ({"$ref": "#/$defs/x", "$defs": {"x": A}}, {"$ref": "#/$defs/x", "$defs": {"x": CLOSED}}),
        ({"properties": {"properties": A}}, {"properties": {"properties": CLOSED}, "additionalProperties": False}),
        ({"const": A, "default": A, "enum": [A]}, {"const": A, "default": A, "enum": [A]}),
        ({"properties": 3, "items": 3, "anyOf": 3}, {"properties": 3, "items": 3, "anyOf": 3}),
        ({"items": True}, {"items": True}),
    ],
    ids=str,
)
def test_an_object_that_lists_its_properties_has_no_others(schema: dict[str, Any], closed: dict[str, Any]) -> None:
    made = prepared(schema)
    assert made.pop("x-guidance")
    assert made == closed


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, {"properties": {"b": {}}}]},
        {"properties": {"a": A}, "anyOf": [{"required": ["a"]}]},
        {"items": {"$ref": "#/$defs/x", "properties": {"b": {}}}, "$defs": {"x": A}},
    ],
    ids=str,
)
def test_where_schemas_are_combined_all_stay_open(schema: dict[str, Any]) -> None:
    made = prepared(schema)
    assert made.pop("x-guidance")
    assert made == schema


def test_a_schema_does_not_choose_how_it_is_kept_to() -> None:
    assert prepared({"x-guidance": {"lenient": True}}) == prepared({})


@pytest.mark.parametrize("multiples", [[7], [0.01, 5], [1000, 0.5], [100_000], [0], [-3], [True], ["x"], [0.001, 25]])
def test_few_remainders_are_fine(multiples: list[Any]) -> None:
    check_multiples({"allOf": [{"multipleOf": each} for each in multiples]})


@pytest.mark.parametrize("multiples", [[100_001], [9973, 9967], [0.0001, 1009], [1e-300], [1e300], [1e-30, 1]])
def test_many_are_not(multiples: list[Any]) -> None:
    with pytest.raises(SchemaError):
        check_multiples({"x": [{"multipleOf": each} for each in multiples]})
