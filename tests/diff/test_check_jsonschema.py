"""Checking values against schemas (constrain/check.h), against the `jsonschema` library.

    pip install -r tests/requirements.txt
    pytest tests/diff/test_check_jsonschema.py

Random schemas over few keys, few texts and small numbers, so that keywords meet and both verdicts are
frequent. Every verdict must be the library's. Numbers are fractions there, exact as ours are.
"""
import collections
import fractions
import json
import random
import subprocess

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")

SEED = 20251201
N_SCHEMAS = 2500
N_INSTANCES = 8


def ask(build_dir, questions):
    """Each question is the text of a schema and a list of texts of instances."""
    driver = build_dir / "tests" / "diff" / "chk_driver"
    if not driver.exists():
        pytest.skip("chk_driver is not built")
    lines = ["{\"schema\": %s, \"instances\": [%s]}\n" % (schema, ", ".join(instances))
             for schema, instances in questions]
    run = subprocess.run([str(driver)], input="".join(lines).encode(), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, timeout=600)
    assert run.returncode == 0, run.stderr.decode()
    answers = [json.loads(line) for line in run.stdout.decode().strip("\n").split("\n")]
    assert len(answers) == len(questions)
    return answers


# ---- the library, with exact numbers ---------------------------------------------------------------

def parse(text):
    return json.loads(text, parse_float=fractions.Fraction)


def is_integer(_checker, value):
    if isinstance(value, fractions.Fraction):
        return value.denominator == 1
    return isinstance(value, int) and not isinstance(value, bool)


def unique_items(_validator, unique, instance, _schema):
    """The library's sorts first, and then compares neighbours only: [1] and [true] between others may
    hide a pair from it."""
    from jsonschema._utils import equal
    if unique and isinstance(instance, list):
        for i, a in enumerate(instance):
            if any(equal(a, b) for b in instance[:i]):
                yield jsonschema.ValidationError("not unique")


BASE = jsonschema.Draft202012Validator
Validator = jsonschema.validators.extend(
    BASE, {"uniqueItems": unique_items}, type_checker=BASE.TYPE_CHECKER.redefine("integer", is_integer))


# ---- random schemas and values, as texts -----------------------------------------------------------

KEYS = ["a", "b", "ab", "é", "x/y", "~", "$id"]
TEXTS = ["", "a", "b", "ab", "abc", "bca", "é", "日本", "😀", "a\"b", "a b", "10"]
NUMBERS = ["0", "1", "1.0", "10e-1", "2", "3", "-1", "-0", "0.0", "0.5", "0.3", "0.30", "1.5", "-2.5", "100", "1e2",
           "9007199254740993", "9007199254740992", "9007199254740993.0", "0.1", "1e-3", "12345678901234567890"]
DIVISORS = ["1", "2", "3", "0.1", "0.01", "1.5", "5e-1", "1e-3", "10", "1e2", "7"]
COUNTS = ["0", "1", "2", "3", "1.0", "2e0"]
PATTERNS = ["^a", "b$", "^[ab]+$", "b", "^.$", "^$", "^(a|é).?$", "[^a]", r"\d{2}", r"^\w+ \w$"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def texts_of(keys):
    return "[%s]" % ", ".join(json.dumps(k, ensure_ascii=False) for k in keys)


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, depth=0):
        r = self.r
        kind = r.choice(["scalar", "number", "number", "string"] + (["array", "object", "object"] if depth < 3 else []))
        if kind == "scalar":
            return r.choice(["null", "true", "false"])
        if kind == "number":
            return r.choice(NUMBERS)
        if kind == "string":
            return json.dumps(r.choice(TEXTS), ensure_ascii=r.random() < 0.3)
        if kind == "array":
            few = [self.value(depth + 1) for _ in range(r.randint(1, 4))]
            return "[%s]" % ", ".join(r.choice(few) for _ in range(r.randrange(5)))
        return self.object_of({k: self.value(depth + 1) for k in r.sample(KEYS, r.randrange(4))})

    def object_of(self, members):
        items = list(members.items())
        self.r.shuffle(items)
        return "{%s}" % ", ".join("%s: %s" % (json.dumps(k), v) for k, v in items)

    def schemas(self, depth, most=3):
        return "[%s]" % ", ".join(self.schema(depth + 1) for _ in range(self.r.randint(1, most)))

    def map_of(self, names, make):
        return self.object_of({k: make() for k in names})

    def keyword(self, depth):
        """A keyword and the text of its value."""
        r = self.r
        inner = lambda: self.schema(depth + 1)
        flat = {
            "type": lambda: (json.dumps(r.choice(TYPES)) if r.random() < 0.6
                             else json.dumps(r.sample(TYPES, r.randint(1, 4)))),
            "enum": lambda: "[%s]" % ", ".join(self.value(2) for _ in range(r.randint(1, 5))),
            "const": lambda: self.value(1),
            "required": lambda: texts_of(r.sample(KEYS, r.randrange(3))),
            "minProperties": lambda: r.choice(COUNTS), "maxProperties": lambda: r.choice(COUNTS),
            "minItems": lambda: r.choice(COUNTS), "maxItems": lambda: r.choice(COUNTS),
            "uniqueItems": lambda: r.choice(["true", "true", "false"]),
            "minLength": lambda: r.choice(COUNTS), "maxLength": lambda: r.choice(COUNTS),
            "pattern": lambda: json.dumps(r.choice(PATTERNS), ensure_ascii=False),
            "minimum": lambda: r.choice(NUMBERS), "maximum": lambda: r.choice(NUMBERS),
            "exclusiveMinimum": lambda: r.choice(NUMBERS), "exclusiveMaximum": lambda: r.choice(NUMBERS),
            "multipleOf": lambda: r.choice(DIVISORS),
            "dependentRequired": lambda: self.map_of(r.sample(KEYS, 2), lambda: texts_of(r.sample(KEYS, 1))),
            "format": lambda: "\"date\"", "x-note": lambda: self.value(2), "default": lambda: self.value(2),
        }
        deep = {
            "properties": lambda: self.map_of(r.sample(KEYS, r.randint(1, 4)), inner),
            "patternProperties": lambda: self.map_of(r.sample(PATTERNS, r.randint(1, 2)), inner),
            "additionalProperties": inner, "propertyNames": inner, "items": inner, "contains": inner,
            "prefixItems": lambda: self.schemas(depth), "not": inner,
            "dependentSchemas": lambda: self.map_of(r.sample(KEYS, 1), inner),
            "anyOf": lambda: self.schemas(depth), "oneOf": lambda: self.schemas(depth),
            "allOf": lambda: self.schemas(depth, 2),
        }
        if depth < 3 and r.random() < 0.6:
            name = r.choice(list(deep))
            return name, deep[name]()
        name = r.choice(list(flat))
        return name, flat[name]()

    def schema(self, depth=0):
        r = self.r
        if r.random() < 0.12 and depth > 0:
            return r.choice(["true", "true", "false", "{}"])
        members = dict(self.keyword(depth) for _ in range(r.choice([1, 1, 2, 3]) if depth else r.randint(2, 5)))
        if "contains" in members and r.random() < 0.6:
            members[r.choice(["minContains", "maxContains"])] = r.choice(COUNTS)
        if r.random() < 0.08 and depth < 3:
            members["if"] = self.schema(depth + 1)
            for name in r.sample(["then", "else"], r.randint(1, 2)):
                members[name] = self.schema(depth + 1)
        if r.random() < 0.15:
            members["$ref"] = json.dumps(r.choice(["#", "#/$defs/a~1b", "#/$defs/two%20words", "#here"]))
        return self.object_of(members)

    def whole(self):
        text = self.schema()
        defs = self.object_of({"a/b": self.schema(2), "two words": self.schema(2),
                               "third": self.object_of({"$anchor": "\"here\"", **dict([self.keyword(2)])})})
        return "{\"$defs\": %s, %s" % (defs, text[1:])


def questions_of(seed):
    for i in range(N_SCHEMAS):
        maker = Maker(seed * 100003 + i)
        yield maker.whole(), [maker.value(0) for _ in range(N_INSTANCES)]


def deciding(schema, error, text):
    """The keywords that an error went through. The library leaves out two of them."""
    path = set(map(str, error.absolute_schema_path))
    found = path & set(BASE.VALIDATORS)
    if path & {"then", "else"}:
        found.add("if")
    without = {k: v for k, v in schema.items() if k != "$ref"}
    if "$ref" in schema and Validator(without).is_valid(parse(text)):
        found.add("$ref")
    return found


def test_random_schemas(build_dir):
    print("seed %d" % SEED)
    questions = list(questions_of(SEED))
    counts = collections.Counter()
    keywords = collections.Counter()
    for (schema, instances), (whole, *verdicts) in zip(questions, ask(build_dir, questions)):
        parsed = parse(schema)
        BASE.check_schema(json.loads(schema))
        validator = Validator(parsed)
        if whole["code"] != "SL_OK":
            # The one thing that is drawn and refused: the library follows it until its stack is full.
            assert whole["code"] == "SL_ERR_UNSUPPORTED" and "refers to itself without end" in whole["error"], schema
            counts["endless"] += 1
            continue
        for text, verdict in zip(instances, verdicts):
            error = next(validator.iter_errors(parse(text)), None)
            valid = error is None
            assert verdict["code"] == ("SL_OK" if valid else "SL_ERR_ARGUMENT"), (schema, text, valid, verdict)
            counts[valid] += 1
            if not valid:
                keywords.update(deciding(parsed, error, text))
    print(dict(counts), dict(keywords))
    assert counts[True] > 2000 and counts[False] > 2000 and counts["endless"] < N_SCHEMAS / 4
    missing = set(BASE.VALIDATORS) - set(keywords)
    assert min(keywords.values()) > 10
    assert missing == {"$dynamicRef", "format", "unevaluatedItems", "unevaluatedProperties"}


@pytest.mark.parametrize("value, divisor, valid", [
    ("0.3", "0.1", True), ("1e20", "3", False), ("99999999999999999999", "3", True), ("0", "7", True),
    ("1e9999", "7e-3", False), ("1.05", "0.1", False), ("1e-9999", "1e-9999", True), ("3e-9999", "2e-9999", False),
    ("-4.5", "1.5", True), ("123456789012345678", "123456789012345678", True),
])
def test_multiples_are_exact(build_dir, value, divisor, valid):
    assert (fractions.Fraction(value) % fractions.Fraction(divisor) == 0) == valid
    ((_, verdict),) = ask(build_dir, [("{\"multipleOf\": %s}" % divisor, [value])])
    assert verdict["code"] == ("SL_OK" if valid else "SL_ERR_ARGUMENT")
