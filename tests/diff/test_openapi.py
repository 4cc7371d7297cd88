"""docs/openapi.yaml against what is built: every field that it lists is read, every field that it calls refused is
refused, every field that the sources read or refuse is in it, and every answer fits its schema.

    pip install -r tests/requirements.txt
    pytest tests/diff/test_openapi.py             (SL_API_DRIVER: the program, where it is elsewhere)
"""
import json
import os
import re
import subprocess

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema==4.26.0")
referencing = pytest.importorskip("referencing", reason="comes with jsonschema")
yaml = pytest.importorskip("yaml", reason="needs PyYAML==6.0.4")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(ROOT, "docs", "openapi.yaml"), encoding="utf-8") as file:
    SPEC = yaml.safe_load(file)
SCHEMAS = SPEC["components"]["schemas"]
REGISTRY = referencing.Registry().with_resource(
    "urn:spec", referencing.Resource(contents=SPEC, specification=referencing.jsonschema.DRAFT202012))
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}
# dialect: request schema, what a request needs, answer, event
DIALECTS = {
    "chat": ("ChatRequest", {"messages": HELLO}, "ChatCompletion", "ChatChunk"),
    "completions": ("CompletionRequest", {"prompt": "Once"}, "Completion", "Completion"),
    "responses": ("ResponsesRequest", {"input": "Hello"}, "Response", "ResponseEvent"),
    "messages": ("MessagesRequest", {"messages": HELLO, "max_tokens": 9}, "Message", "MessageEvent"),
    "count": ("CountRequest", {"messages": HELLO}, "Count", None),
}
NEEDS = {"top_logprobs": {"logprobs": True}}  # of chat


def driver():
    build = os.environ.get("SLUICE_BUILD", os.path.join(ROOT, "build", "check"))
    path = os.environ.get("SL_API_DRIVER", os.path.join(build, "tests", "diff", "api_driver"))
    if not os.path.exists(path):
        pytest.skip("api_driver is not built (SL_API_DRIVER=%s)" % path)
    return path


def run(dialect, request, events):
    body = json.dumps(request).encode()
    out = subprocess.run([driver(), dialect], input=b"%d\n" % len(body) + body + json.dumps(events).encode(),
                         stdout=subprocess.PIPE, check=True, timeout=60).stdout
    line, _, answer = out.partition(b"\n")
    return json.loads(line), answer


def fits(name, value):
    schema = {"$ref": "urn:spec#/components/schemas/" + name}
    validator = jsonschema.Draft202012Validator(schema, registry=REGISTRY)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    assert error is None, "%s: %s at %s in %s" % (name, error.message, error.json_path, json.dumps(value)[:300])


def merged(name, what):
    """The members of `what` of a schema and of those that it is made of."""
    out = {}
    for part in SCHEMAS[name].get("allOf", []):
        out.update(merged(part["$ref"].rpartition("/")[2], what))
    out.update(SCHEMAS[name].get(what, {}))
    return out


def base(dialect):
    return {"model": "demo", **DIALECTS[dialect][1]}


FIELDS = [(d, f) for d in DIALECTS for f in merged(DIALECTS[d][0], "properties")]
REFUSED = [(d, f) for d in DIALECTS for f in merged(DIALECTS[d][0], "x-refused")]


@pytest.mark.parametrize("dialect, field", FIELDS)
def test_listed_fields_are_read(dialect, field):
    examples = merged(DIALECTS[dialect][0], "properties")[field]["examples"]
    assert examples
    for example in examples:
        more = NEEDS.get(field, {}) if dialect == "chat" else {}
        request = {**base(dialect), **more, field: example}
        fits(DIALECTS[dialect][0], request)
        about, answer = run(dialect, request, [7] if dialect == "count" else [])
        assert about["status"] == 200 and about["n_ignored"] == 0, answer


@pytest.mark.parametrize("dialect, field", REFUSED)
def test_refused_fields_are_refused(dialect, field):
    neutral = merged(DIALECTS[dialect][0], "x-refused")[field]
    events = [7] if dialect == "count" else []
    about, answer = run(dialect, {**base(dialect), field: neutral}, events)
    assert about["status"] == 200 and about["n_ignored"] == 0, answer
    for wrong in (True, "x", ["x"], {"x": 1}, 7):
        about, answer = run(dialect, {**base(dialect), field: wrong}, events)
        assert about["status"] == 400 and about["param"] == field, (wrong, about)
        fits("OpenAIError" if dialect not in ("messages", "count") else "AnthropicError", json.loads(answer))


def test_fields_of_the_sources_are_listed():
    text = json.dumps(SPEC)
    names = set()
    folder = os.path.join(ROOT, "src", "server")
    for name in os.listdir(folder):
        if name.startswith("api_") and name.endswith(".c"):
            with open(os.path.join(folder, name), encoding="utf-8") as source:
                names.update(re.findall(r'(?:\.name = |REFUSED\(|MAX_TOKENS\()"([a-z_]+)"', source.read()))
    assert len(names) > 90
    missing = [n for n in names if '"%s"' % n not in text and not re.search(r"\b%s\b" % n, text)]
    assert missing == []


EVENTS = [["prefill", 1, 2], ["begin", 9, 2], ["reasoning", "hm"], ["token", [72, 105], -0.5, [[72], -1]],
          ["text", "Hi"], ["call", "weather", '{"city":"Bern"}'], ["text", "there"]]
ENDS = [["stop", None], ["stop_string", "END"], ["length", None], ["context", None]]
TOOLS = {"chat": [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}],
         "responses": [{"type": "function", "name": "weather", "parameters": TOOL}],
         "messages": [{"name": "weather", "input_schema": TOOL}]}
LOGPROBS = {"chat": {"logprobs": True, "top_logprobs": 1}, "completions": {"logprobs": 1},
            "responses": {"top_logprobs": 1}}


def events_of(answer):
    for event in answer.decode().split("\n\n"):
        data = [line[6:] for line in event.split("\n") if line.startswith("data: ")]
        assert len(data) <= 1
        if data and data[0] != "[DONE]":
            yield json.loads(data[0])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dialect", ["chat", "completions", "responses", "messages"])
def test_answers_fit(dialect, whole, end):
    request = {**base(dialect), **(LOGPROBS.get(dialect, {}) if whole else {})}
    if dialect in TOOLS:
        request["tools"] = TOOLS[dialect]
    script = (EVENTS if whole else EVENTS[1:2]) + [["finish", *end, 9, 2, 5, 1]]
    about, answer = run(dialect, request, script)
    assert about["status"] == 200
    fits(DIALECTS[dialect][2], json.loads(answer))
    request["stream"] = True
    if dialect in ("chat", "completions"):
        request["stream_options"] = {"include_usage": True}
    about, answer = run(dialect, request, script)
    events = list(events_of(answer))
    assert len(events) >= 2
    for event in events:
        fits(DIALECTS[dialect][3], event)


@pytest.mark.parametrize("dialect", ["responses", "messages"])
@pytest.mark.parametrize("script", [EVENTS, []])
def test_failures_in_a_stream_fit(dialect, script):
    request = {**base(dialect), "stream": True, "tools": TOOLS[dialect]}
    _, answer = run(dialect, request, script + [["failure", "the drive is gone"]])
    events = list(events_of(answer))
    for event in events:
        fits(DIALECTS[dialect][3], event)
    assert "the drive is gone" in json.dumps(events[-1])


def test_what_does_not_fit_is_found():
    _, answer = run("chat", base("chat"), EVENTS[1:2] + [["finish", "stop", None, 9, 2, 5, 1]])
    for spoil in (lambda a: a.pop("usage"), lambda a: a["usage"].pop("total_tokens"), lambda a: a.update(x=1),
                  lambda a: a["choices"][0].update(finish_reason="end"), lambda a: a["choices"][0]["message"].update(x=1)):
        spoiled = json.loads(answer)
        spoil(spoiled)
        with pytest.raises(AssertionError):
            fits("ChatCompletion", spoiled)


def test_models_fit():
    out = subprocess.run([driver(), "models"], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    fits("ModelList", json.loads(out.partition(b"\n")[2]))
