"""The check of values against schemas, against the `jsonschema` library: random schemas, random values.

    pip install -r tests/requirements.txt
    pytest tests/diff/test_schema_check.py        (SL_API_DRIVER: the program, where it is elsewhere)
"""
import json
import os
import random
import subprocess

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema==4.26.0")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FITS, MISFIT = 0, 1  # SL_OK, SL_ERR_ARGUMENT
SEED = 20250711
NAMES = ["a", "b", "c", "é"]


def driver():
    build = os.environ.get("SLUICE_BUILD", os.path.join(ROOT, "build", "check"))
    path = os.environ.get("SL_API_DRIVER", os.path.join(build, "tests", "diff", "api_driver"))
    if not os.path.exists(path):
        pytest.skip("api_driver is not built (SL_API_DRIVER=%s)" % path)
    return path


def value(r, depth=3):
    kind = r.randrange(8 if depth else 6)
    if kind == 6:
        return [value(r, depth - 1) for _ in range(r.randrange(4))]
    if kind == 7:
        return {n: value(r, depth - 1) for n in r.sample(NAMES, r.randrange(4))}
    return [None, r.random() < 0.5, r.randrange(-3, 6), r.choice([0.5, 1.0, 2.0, -1.5]),
            r.choice(["", "a", "bc", "é漢", "defg"]), r.randrange(3)][kind]


def leaf(r):
    """A few keywords that are not about other schemas."""
    out = {}
    for _ in range(r.randrange(1, 3)):
        key, make = r.choice([
            ("type", lambda: r.choice(["integer", "number", "string", "boolean", "null", "array", "object",
                                       ["integer", "null"], ["string", "array"]])),
            ("enum", lambda: [value(r, 2) for _ in range(r.randrange(1, 5))]),
            ("const", lambda: value(r, 2)),
            ("minimum", lambda: r.randrange(-2, 4)), ("maximum", lambda: r.choice([0, 1.5, 3])),
            ("exclusiveMinimum", lambda: r.randrange(-2, 4)), ("exclusiveMaximum", lambda: r.randrange(0, 4)),
            ("multipleOf", lambda: r.choice([1, 2, 0.5])),
            ("minLength", lambda: r.randrange(3)), ("maxLength", lambda: r.randrange(4)),
            ("minItems", lambda: r.randrange(3)), ("maxItems", lambda: r.randrange(4)),
            ("uniqueItems", lambda: r.random() < 0.8),
            ("required", lambda: r.sample(NAMES, r.randrange(3))),
            ("minProperties", lambda: r.randrange(3)), ("maxProperties", lambda: r.randrange(4)),
            ("dependentRequired", lambda: {r.choice(NAMES): r.sample(NAMES, r.randrange(3))})])
        out[key] = make()
    return out


def schema(r, depth=3):
    if depth == 0 or r.random() < 0.2:
        return r.choice([True, False]) if r.random() < 0.1 else leaf(r)
    out = leaf(r) if r.random() < 0.5 else {}
    for _ in range(r.randrange(1, 3)):
        key, make = r.choice([
            ("properties", lambda: {n: schema(r, depth - 1) for n in r.sample(NAMES, r.randrange(4))}),
            ("additionalProperties", lambda: r.choice([False, schema(r, depth - 1)])),
            ("propertyNames", lambda: {"enum": r.sample(NAMES, 3)}),
            ("items", lambda: schema(r, depth - 1)),
            ("prefixItems", lambda: [schema(r, depth - 1) for _ in range(r.randrange(1, 3))]),
            ("contains", lambda: schema(r, depth - 1)),
            ("minContains", lambda: r.randrange(3)), ("maxContains", lambda: r.randrange(3)),
            ("allOf", lambda: [schema(r, depth - 1) for _ in range(r.randrange(1, 3))]),
            ("anyOf", lambda: [schema(r, depth - 1) for _ in range(r.randrange(1, 3))]),
            ("oneOf", lambda: [schema(r, depth - 1) for _ in range(r.randrange(1, 3))]),
            ("not", lambda: schema(r, depth - 1)), ("if", lambda: schema(r, depth - 1)),
            ("then", lambda: schema(r, depth - 1)), ("else", lambda: schema(r, depth - 1)),
            ("$ref", lambda: r.choice(["#/$defs/x", "#/$defs/y~1z"]))])
        out[key] = make()
    return out


def test_schema_check_agrees():
    r = random.Random(SEED)
    lines, expected, pairs = [], [], []
    for _ in range(3000):
        s = schema(r)
        if isinstance(s, dict):
            s["$defs"] = {"x": leaf(r), "y/z": leaf(r)}
        validator = jsonschema.Draft202012Validator(s)
        for _ in range(8):
            v = value(r)
            expected.append(FITS if validator.is_valid(v) else MISFIT)
            pairs.append((s, v))
            lines.append(json.dumps(s) + "\t" + json.dumps(v) + "\n")
    out = subprocess.run([driver(), "schema"], input="".join(lines).encode(), stdout=subprocess.PIPE, check=True,
                         timeout=120).stdout
    got = [int(x) for x in out.split()]
    assert len(got) == len(expected)
    wrong = [(p, e, g) for p, e, g in zip(pairs, expected, got) if e != g]
    assert wrong == []
    # Both verdicts are common enough for the comparison to mean something.
    assert min(expected.count(FITS), expected.count(MISFIT)) > len(expected) // 5
