"""The local server as its clients meet it: both vendors' own packages, a tool that people use, curl; answers held to
schemas; the same bits as `sluice run`; turns of conversations; queue, leavers, signs of life, the end.

    pip install -r tests/requirements.txt
    pytest tests/e2e/test_server.py
"""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from conftest import ROOT
from serving import ENDLESS, EXAMPLES, free_of_tools, serving, slow_model, text_of

openai = pytest.importorskip("openai", reason="needs openai==3.57.0")
anthropic = pytest.importorskip("anthropic", reason="needs anthropic==2.14.0")
jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema==4.26.0")

NO_THINKING = {"enable_thinking": False}
STORY = "Tell me a story about a fox and an owl."
PLAIN = free_of_tools()
THINKING = free_of_tools(thinking=True)
# Calls that the demo model makes, by the question that leads to them.
CALLS = {
    "What is the weather in Rome?": [("get_weather", {"city": "Rome"})],
    "Set a timer of 12 minutes for tea.": [("set_timer", {"minutes": 12, "label": "tea"})],
    "Turn the kitchen light off.": [("set_light", {"room": "kitchen", "on": False})],
    "Convert 12.5 miles to kilometres.": [("convert_units", {"value": 12.5, "from": "miles", "to": "kilometres"})],
    "What is the weather in Paris and the time in Madrid?": [("get_weather", {"city": "Paris"}),
                                                             ("get_time", {"city": "Madrid"})],
    "Add milk, bread and eggs to the shopping list.": [("add_to_list", {"list": "shopping",
                                                                        "items": ["milk", "bread", "eggs"]})],
}
CALLING = [e for e in EXAMPLES if e["messages"][-1]["content"] in CALLS and "tools" in e]


@pytest.fixture(scope="module")
def server(sluice, demo_store, tmp_path_factory):
    with serving(sluice, demo_store, log=tmp_path_factory.mktemp("server") / "log") as s:
        yield s
        s.idle()
        assert s.stop() == 0


@pytest.fixture(scope="module")
def slow(sluice, build_dir, tmp_path_factory):
    """A server of a model that is slow enough to be caught in every phase; at most 2 requests wait."""
    folder = tmp_path_factory.mktemp("slow")
    with serving(sluice, slow_model(build_dir, folder), "--queue", "2", "--chunk", "256", mem="700M", ctx=4096,
                 log=folder / "log") as s:
        yield s
        s.idle()
        assert s.stop() == 0


@pytest.fixture(scope="module")
def oai(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def ant(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def split_thinking(answer):
    """(thinking or None, text) of a recorded answer."""
    thinking, mark, text = answer.partition("\n</think>\n\n")
    return (thinking, text) if mark else (None, answer)


# ---- OpenAI's client -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_openai_chat(oai, stream):
    for e in PLAIN[::3]:
        request = dict(model="demo", messages=e["messages"], temperature=0, extra_body=NO_THINKING)
        if stream:
            chunks = list(oai.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
            usage = chunks[-1].usage
        else:
            answer = oai.chat.completions.create(**request)
            text, usage = answer.choices[0].message.content, answer.usage
            assert answer.choices[0].finish_reason == "stop"
        assert text == e["answer"]
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(e["prompt_ids"]), len(e["answer_ids"]))


def test_openai_thinking(oai):
    for e in THINKING[:3]:
        thinking, text = split_thinking(e["answer"])
        message = oai.chat.completions.create(model="demo", messages=e["messages"], temperature=0).choices[0].message
        assert (message.content, message.reasoning_content) == (text, thinking)


@pytest.mark.parametrize("stream", [False, True])
def test_openai_completions(oai, stream):
    for e in PLAIN[1::9]:
        request = dict(model="demo", prompt=e["rendered"], temperature=0, max_tokens=200)
        if stream:
            text = "".join(c.choices[0].text for c in oai.completions.create(**request, stream=True) if c.choices)
        else:
            text = oai.completions.create(**request).choices[0].text
        assert text == e["answer"]
    ids = oai.completions.create(model="demo", prompt=PLAIN[0]["prompt_ids"], temperature=0, max_tokens=200)
    assert ids.choices[0].text == PLAIN[0]["answer"]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_responses(oai, stream):
    for e in [e for e in PLAIN if len(e["messages"]) == 1][::9]:
        request = dict(model="demo", input=e["messages"][0]["content"], temperature=0, reasoning={"effort": "none"})
        if stream:
            with oai.responses.stream(**request) as s:
                deltas = "".join(x.delta for x in s if x.type == "response.output_text.delta")
                response = s.get_final_response()
            assert deltas == e["answer"]
        else:
            response = oai.responses.create(**request)
        assert (response.status, response.output_text) == ("completed", e["answer"])
        assert response.usage.output_tokens == len(e["answer_ids"])


@pytest.mark.parametrize("stream", [False, True])
def test_openai_tools(oai, stream):
    for e in CALLING:
        request = dict(model="demo", messages=e["messages"], tools=e["tools"], temperature=0,
                       extra_body={"enable_thinking": e["enable_thinking"]})
        if stream:
            with oai.chat.completions.stream(**request) as s:
                choice = s.get_final_completion().choices[0]
        else:
            choice = oai.chat.completions.create(**request).choices[0]
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls]
        assert choice.finish_reason == "tool_calls" and calls == CALLS[e["messages"][-1]["content"]]
        assert len({c.id for c in choice.message.tool_calls}) == len(calls)


def test_openai_tool_results_go_back(oai):
    """A whole round: the call, its result, the answer about it."""
    weather = CALLING[0]
    messages = [{"role": "user", "content": "What time is it in Lima?"}]
    tools = [t for e in EXAMPLES if "tools" in e for t in e["tools"] if t["function"]["name"] == "get_time"][:1]
    tools += weather["tools"][:1]
    ask = dict(model="demo", tools=tools, temperature=0, extra_body=NO_THINKING)
    call = oai.chat.completions.create(messages=messages, **ask).choices[0].message
    assert [(c.function.name, json.loads(c.function.arguments)) for c in call.tool_calls] == [("get_time", {"city": "Lima"})]
    messages += [call.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": '{"time": "07:45"}'}]
    assert oai.chat.completions.create(messages=messages, **ask).choices[0].message.content == "It is 07:45 in Lima."


@pytest.mark.parametrize("stream", [False, True])
def test_openai_tool_choice(oai, stream):
    tools = CALLING[0]["tools"]
    for choice, names in (("required", {"get_weather", "get_time"}),
                          ({"type": "function", "function": {"name": "get_time"}}, {"get_time"})):
        request = dict(model="demo", messages=[{"role": "user", "content": "What is the capital of Italy?"}],
                       tools=tools, tool_choice=choice, temperature=0, max_tokens=200, parallel_tool_calls=False)
        if stream:
            with oai.chat.completions.stream(**request) as s:
                message = s.get_final_completion().choices[0].message
        else:
            message = oai.chat.completions.create(**request).choices[0].message
        assert len(message.tool_calls) == 1 and message.tool_calls[0].function.name in names
        assert "city" in json.loads(message.tool_calls[0].function.arguments)
    none = oai.chat.completions.create(model="demo", messages=CALLING[0]["messages"], tools=tools, tool_choice="none",
                                       temperature=0, max_tokens=60, extra_body=NO_THINKING).choices[0]
    assert not none.message.tool_calls


def test_openai_parses_into_a_class(oai):
    pydantic = pytest.importorskip("pydantic")

    class Word(pydantic.BaseModel):
        word: str
        kind: str
        meaning: str

    ask = [{"role": "user", "content": "Define water as JSON."}]
    chat = oai.chat.completions.parse(model="demo", messages=ask, response_format=Word, temperature=0)
    response = oai.responses.parse(model="demo", input=ask, text_format=Word, temperature=0)
    for word in (chat.choices[0].message.parsed, response.output_parsed):
        assert (word.word, word.kind) == ("water", "noun") and word.meaning.startswith("binary compound")


def test_openai_logprobs(oai):
    choice = oai.chat.completions.create(model="demo", messages=PLAIN[0]["messages"], temperature=0, logprobs=True,
                                         top_logprobs=3, extra_body=NO_THINKING).choices[0]
    tokens = choice.logprobs.content
    assert "".join(t.token for t in tokens) == PLAIN[0]["answer"] and len(tokens) == len(PLAIN[0]["answer_ids"])
    for t in tokens:  # greedy: the likeliest was taken
        assert len(t.top_logprobs) == 3 and t.logprob == max(a.logprob for a in t.top_logprobs) <= 0


def test_openai_sees_errors_as_its_own(oai, server):
    with pytest.raises(openai.NotFoundError) as e:
        oai.chat.completions.create(model="other", messages=PLAIN[0]["messages"])
    assert e.value.code == "model_not_found" and "demo" in str(e.value)
    with pytest.raises(openai.BadRequestError) as e:
        oai.chat.completions.create(model="demo", messages=PLAIN[0]["messages"], n=2)
    assert e.value.param == "n"
    assert [m.id for m in oai.models.list()] == ["demo"] and oai.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        oai.models.retrieve("other")


# ---- Anthropic's client --------------------------------------------------------------------------------------------


def anthropic_tools(tools):
    return [{"name": t["function"]["name"], "description": t["function"]["description"],
             "input_schema": t["function"]["parameters"]} for t in tools]


def anthropic_answer(ant, stream, **request):
    request = dict(model="demo", max_tokens=300, extra_body={"temperature": 0}, **request)
    if not stream:
        return ant.messages.create(**request)
    with ant.messages.stream(**request) as s:
        text = "".join(s.text_stream)
        message = s.get_final_message()
    assert text == "".join(b.text for b in message.content if b.type == "text")
    return message


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_messages(ant, stream):
    for e in PLAIN[2::5]:
        system = {"system": e["messages"][0]["content"]} if e["messages"][0]["role"] == "system" else {}
        messages = [m for m in e["messages"] if m["role"] != "system"]
        m = anthropic_answer(ant, stream, messages=messages, thinking={"type": "disabled"}, **system)
        assert [b.text for b in m.content] == [e["answer"]] and m.stop_reason == "end_turn"
        usage = m.usage
        assert usage.input_tokens + usage.cache_read_input_tokens == len(e["prompt_ids"])
        assert usage.output_tokens == len(e["answer_ids"])


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_thinking(ant, stream):
    e = THINKING[0]
    thinking, text = split_thinking(e["answer"])
    m = anthropic_answer(ant, stream, messages=e["messages"],
                         thinking={"type": "enabled", "budget_tokens": 1024})
    assert [(b.type, getattr(b, b.type)) for b in m.content] == [("thinking", thinking), ("text", text)]


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_tools(ant, stream):
    for e in [e for e in CALLING if not e["enable_thinking"] and len(e["messages"]) == 1]:
        m = anthropic_answer(ant, stream, messages=e["messages"], tools=anthropic_tools(e["tools"]),
                             thinking={"type": "disabled"})
        calls = [(b.name, b.input) for b in m.content if b.type == "tool_use"]
        assert m.stop_reason == "tool_use" and calls == CALLS[e["messages"][-1]["content"]]


def test_anthropic_tool_results_go_back(ant):
    tools = anthropic_tools([t for e in EXAMPLES if "tools" in e for t in e["tools"]
                             if t["function"]["name"] in ("get_time", "get_weather")][:2])
    messages = [{"role": "user", "content": "What time is it in Lima?"}]
    ask = dict(tools=tools, thinking={"type": "disabled"})
    call = anthropic_answer(ant, False, messages=messages, **ask)
    assert [(b.name, b.input) for b in call.content] == [("get_time", {"city": "Lima"})]
    messages += [{"role": "assistant", "content": call.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.content[0].id,
                                               "content": '{"time": "07:45"}'}]}]
    assert anthropic_answer(ant, True, messages=messages, **ask).content[0].text == "It is 07:45 in Lima."


def test_anthropic_counts_and_errors(ant):
    e = PLAIN[0]
    count = ant.messages.count_tokens(model="demo", messages=e["messages"], thinking={"type": "disabled"})
    assert count.input_tokens == len(e["prompt_ids"])
    with pytest.raises(anthropic.BadRequestError) as error:
        ant.messages.create(model="demo", max_tokens=9, messages=[
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                                      "data": "AAAA"}}]}])
    assert "messages[0].content[0]" in str(error.value)
    assert [m.id for m in ant.models.list()] == ["demo"]


# ---- other clients -------------------------------------------------------------------------------------------------


def test_curl(server):
    if not shutil.which("curl"):
        pytest.skip("needs curl")
    body = json.dumps({"model": "demo", "messages": PLAIN[0]["messages"], "temperature": 0, **NO_THINKING})
    run = lambda *args: subprocess.run(["curl", "-sS", "--max-time", "60", *args], capture_output=True, text=True,
                                       check=True, timeout=70).stdout
    post = ("-H", "Content-Type: application/json", server.url + "/v1/chat/completions", "-d")
    assert json.loads(run(*post, body))["choices"][0]["message"]["content"] == PLAIN[0]["answer"]
    lines = run("-N", *post, body[:-1] + ', "stream": true}').splitlines()
    assert lines[-2 if not lines[-1] else -1] == "data: [DONE]"
    assert run("-o", os.devnull, "-w", "%{http_code} %{content_type}", server.url + "/health") == "200 application/json"


def test_llm(server, tmp_path):
    """The command `llm`, a tool of people who work in a terminal, pointed here as its manual says."""
    program = os.path.join(os.path.dirname(sys.executable), "llm")
    if not os.path.exists(program):
        pytest.skip("needs llm==0.36")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: demo\n  model_name: demo\n  api_base: {server.url}/v1\n  api_key_name: none\n"
        "  supports_tools: true\n  supports_schema: true\n")
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none", "HOME": str(tmp_path)}

    def llm(*args):
        r = subprocess.run([program, *args], capture_output=True, text=True, env=env, timeout=60, stdin=subprocess.DEVNULL)
        assert r.returncode == 0, r.stderr
        return r.stdout.strip()

    ask = ("-m", "demo", "-o", "temperature", "0")
    assert llm(*ask, "What is the capital of Spain?") == "The capital of Spain is Madrid."
    assert llm("-c", "And of Italy?", "-o", "temperature", "0") == "The capital of Italy is Rome."
    assert json.loads(llm(*ask, "--schema", "word, kind, meaning", "Define water as JSON."))["word"] == "water"
    functions = 'def get_time(city: str) -> dict:\n    "Get the local time in a city."\n    return {"time": "07:45"}\n'
    assert llm(*ask, "--functions", functions, "What time is it in Lima?") == "It is 07:45 in Lima."


def test_schemathesis(sluice, demo_store, tmp_path):
    """Requests made up from docs/openapi.yaml, near what it allows and beside it: every answer is one that it describes,
    and none an error of the server."""
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    yaml = pytest.importorskip("yaml", reason="needs PyYAML==6.0.4")
    if not os.path.exists(program):
        pytest.skip("needs schemathesis==4.32.5")
    spec = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())

    def prepare(node):
        for name, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            if name == "text/event-stream":
                value["schema"] = {}  # OpenAPI 3.1 describes events, not streams: tests/diff/test_openapi.py
            if name == "properties" and "examples" in value.get("model", ()):
                value["model"] = {"const": "demo"}  # else every request ends there
            prepare(value)

    prepare(spec)
    (tmp_path / "openapi.json").write_text(json.dumps(spec))
    # Methods that HTTP does not know get 501.
    (tmp_path / "schemathesis.toml").write_text('[phases.coverage]\nunexpected-methods = ["PUT", "PATCH", "DELETE"]\n')
    # Room for an answer with all its logprobs.
    with serving(sluice, demo_store, mem="256M", ctx=256, log=tmp_path / "log") as s:
        # What else a request has to be (one switch for thinking, no two tools of a name) is no schema's matter; null is
        # the same as absent wherever something may be absent.
        r = subprocess.run([program, "--config-file", tmp_path / "schemathesis.toml", "run", tmp_path / "openapi.json",
                            "--url", s.url, "--max-examples", "6", "--seed", "1", "--no-color", "--generation-database",
                            "none", "--exclude-checks", "positive_data_acceptance,negative_data_rejection"],
                           capture_output=True, text=True, timeout=150, cwd=tmp_path)
        assert r.returncode == 0, r.stdout[r.stdout.find("FAILURES"):][:8000] + r.stderr[-1000:]
        assert int(re.search(r"(\d+) generated", r.stdout)[1]) > 1000
        assert s.metrics()["completion_tokens_total"] > 1000
        s.idle()
        assert s.stop() == 0


# ---- answers held to a schema --------------------------------------------------------------------------------------


def test_random_schemas(server):
    """Every answer that ends is valid, whatever the model would rather say, streamed or not."""
    sys.path.insert(0, str(ROOT / "tests" / "diff"))
    from test_constrain_jsonschema import CHECKER, Maker, no_constant, without_duplicates
    n_ended = 0
    for seed in range(20):
        schema = Maker(5100 + seed).whole()
        validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
        body = {"messages": [{"role": "user", "content": "Define water as JSON."}], "seed": seed, "max_tokens": 300,
                "response_format": {"type": "json_schema", "json_schema": {"name": "value", "schema": schema}}}
        if seed % 2:
            with server.stream(**body) as s:
                events = list(s.events())
            text, end = text_of(events), events[-1]["choices"][0]["finish_reason"]
        else:
            choice = server.post("/v1/chat/completions", **body)["choices"][0]
            text, end = choice["message"]["content"], choice["finish_reason"]
        if end == "length":
            continue
        assert end == "stop", end
        n_ended += 1
        value = json.loads(text, object_pairs_hook=without_duplicates, parse_constant=no_constant)
        problem = next(validator.iter_errors(value), None)
        assert problem is None, (schema, text, problem.message)
    assert n_ended >= 10  # the model would rather go on


def test_schemas_that_cannot_be_held_are_refused(server):
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    error = server.refused("/v1/chat/completions", 400, messages=PLAIN[0]["messages"], response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert error["param"].startswith("response_format.json_schema.schema") and "not" in error["message"]


# ---- the same bits -------------------------------------------------------------------------------------------------


SAMPLED = [(STORY, 7), ("Write a short fable about honesty.", 123456789), ('What does "owl" mean?', 3)]


@pytest.fixture(scope="module")
def by_run(sluice, demo_store):
    """What `sluice run` answers, by question and seed; at another budget than the server's."""
    def run(question, seed):
        r = subprocess.run([sluice, "run", demo_store, question, "--seed", str(seed), "--json", "-q", "--mem", "20M",
                            "--ctx", "1024"], capture_output=True, text=True, check=True, timeout=60)
        return json.loads(r.stdout)
    return {key: run(*key) for key in SAMPLED}


def test_an_answer_is_that_of_run(server, by_run):
    for (question, seed), expected in by_run.items():
        a = server.post("/v1/chat/completions", messages=[{"role": "user", "content": question}], seed=seed, **NO_THINKING)
        assert a["choices"][0]["message"]["content"] == expected["text"]
        assert a["usage"]["completion_tokens"] == len(expected["tokens"])


def test_an_answer_is_the_same_amid_others(server, by_run):
    """Others that are answered, fail, and leave between them change nothing."""
    def ask(i):
        kind = i % 4
        (question, seed), expected = list(by_run.items())[i % len(by_run)]
        if kind == 0:
            with server.endless(max_tokens=40) as s:
                return len(list(s.events())) > 0
        if kind == 1:
            with server.endless() as s:  # leaves
                return next(s.lines()) is not None
        with server.stream(messages=[{"role": "user", "content": question}], seed=seed, **NO_THINKING) as s:
            return text_of(s.events()) == expected["text"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(24)))
    server.idle()


# ---- conversations ---------------------------------------------------------------------------------------------------


def test_a_turn_computes_only_what_is_new(server):
    """Conversations that take turns each go on from where they were: all that a turn may compute again is the end of
    the turn before, from the answer's beginning on."""
    talks = [[] for _ in range(3)]
    questions = [["Define river.", "Define patience.", "What is a lantern?"],
                 ["What is the capital of Spain?", "And of Italy?", "And of Norway?"],
                 ["What is 12 + 30?", "What is 47 + 38?", "What is 91 - 46?"]]
    long = "You are a helpful assistant. " * 12
    said = [0] * 3
    before = server.metrics()
    prompt = cached = 0
    for turn in range(3):
        for i, talk in enumerate(talks):
            if not talk:
                talk.append({"role": "system", "content": f"{i} {long}"})
            talk.append({"role": "user", "content": questions[i][turn]})
            a = server.chat(talk)
            usage = a["usage"]
            new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            if turn:
                assert new <= usage["prompt_tokens"] - said[i], (turn, i, usage)
            prompt += usage["prompt_tokens"]
            cached += usage["prompt_tokens_details"]["cached_tokens"]
            # What a next turn can share: up to where the answer was asked for, at least.
            said[i] = usage["prompt_tokens"] - 8
            talk.append({"role": "assistant", "content": a["choices"][0]["message"]["content"]})
    after = server.metrics()
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == prompt
    assert after["cached_tokens_total"] - before["cached_tokens_total"] == cached
    assert cached > prompt / 2


def test_an_answer_from_a_snapshot_is_the_same(server, sluice, demo_store, tmp_path):
    """The second turn with and without what was kept of the first one."""
    talk = [{"role": "user", "content": "What is the capital of Spain?"}]
    first = server.chat(talk)["choices"][0]["message"]["content"]
    talk += [{"role": "assistant", "content": first}, {"role": "user", "content": STORY}]
    warm = server.chat(talk, temperature=0.7, seed=5)
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    with serving(sluice, demo_store, "--snapshots", "0", log=tmp_path / "log") as other:
        cold = other.chat(talk, temperature=0.7, seed=5)
        assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert other.stop() == 0
    assert cold["choices"][0]["message"] == warm["choices"][0]["message"]


# ---- what does not fit, and what is not known ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit(server, stream):
    text = "word " * 2000
    n = len(json.loads(server.call("/tokenize", {"content": text})[2])["tokens"])
    assert n > 1024
    requests = {"/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
                "/v1/completions": {"prompt": text}, "/v1/responses": {"input": text},
                "/v1/messages": {"messages": [{"role": "user", "content": text}], "max_tokens": 9}}
    for path, body in requests.items():
        error = server.refused(path, 400, stream=stream, **body)
        counts = [int(x) for x in re.findall(r"\d+", error["message"].replace(",", ""))]
        assert 1024 in counts and any(n <= c <= n + 30 for c in counts), error
        assert error.get("code", "context_length_exceeded") == "context_length_exceeded"
    # One token less than the context is taken, and answered with what room there is.
    ids = [PLAIN[0]["prompt_ids"][0]] * 1023
    answer = server.post("/v1/completions", prompt=ids, temperature=0, logit_bias=ENDLESS)
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["prompt_tokens"] == 1023


def test_fields(server):
    ask = {"messages": PLAIN[0]["messages"], "temperature": 0, **NO_THINKING}
    for field, value in (("n", 2), ("audio", {"voice": "x"}), ("function_call", "auto")):
        assert server.refused("/v1/chat/completions", 400, **ask, **{field: value})["param"] == field
    a = server.post("/v1/chat/completions", **ask, user="me", no_such_field=[1], metadata={"a": "b"})
    assert a["choices"][0]["message"]["content"] == PLAIN[0]["answer"]
    assert "no_such_field" in server.log()


def test_wrong_requests(server):
    for body, status in ((b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (b"\xff{}", 400),
                         (b'{"model":"demo"}', 400), (b'{"model":"demo","messages":[]}', 400),
                         (b'{"model":"demo","messages":"Hello"}', 400), (b'{"messages":[{}],"model":3}', 400)):
        got, _, text = server.call("/v1/chat/completions", body)
        assert got == status and json.loads(text)["error"]["message"], (body, text)
    assert server.call("/v1/chat/completions", b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert server.call("/v1/nothing", {})[0] == 404 and server.call("/v1/models", {})[0] == 405
    assert json.loads(server.call("/v1/messages", b"{")[2])["type"] == "error"


def test_tokens_there_and_back(server):
    for text in ("What does \"owl\" mean?", "größe 日本 😀\n\ttab", ""):
        ids = json.loads(server.call("/tokenize", {"content": text})[2])["tokens"]
        assert json.loads(server.call("/detokenize", {"tokens": ids})[2])["content"] == text
    assert server.call("/detokenize", {"tokens": [1 << 30]})[0] == 400


# ---- what it tells of itself -----------------------------------------------------------------------------------------


def test_metrics_and_memory_agree_with_the_answers(server):
    server.idle()
    before = server.metrics()
    answers = [server.chat(e["messages"]) for e in PLAIN[:5]]
    after = server.metrics()
    usage = [a["usage"] for a in answers]
    for name, members in (("prompt", "prompt_tokens"), ("completion", "completion_tokens")):
        got = after[f"{name}_tokens_total"] - before[f"{name}_tokens_total"]
        assert got == sum(u[members] for u in usage)
    assert after["requests_total"] - before["requests_total"] == 5
    m = server.memory()
    assert m["budget_bytes"] == 64 << 20 == after["memory_budget_bytes"]
    assert m["planned_bytes"] == sum(a["planned_bytes"] for a in m["accounts"]) == after["memory_planned_bytes"]
    assert all(a["used_bytes"] <= a["planned_bytes"] for a in m["accounts"]), m
    assert m["kernel"]["peak_bytes"] <= m["budget_bytes"]
    kv = next(a for a in m["accounts"] if a["name"] == "kv")
    held = usage[-1]["prompt_tokens"] + usage[-1]["completion_tokens"]
    assert 0 < kv["used_bytes"] / kv["planned_bytes"] <= (held + 1) / 1024


# ---- time ------------------------------------------------------------------------------------------------------------


def words(n, salt=""):
    """A prompt of more than n tokens, that no earlier one begins with."""
    return f"{salt or time.monotonic_ns()} " + "word " * n


def test_progress_of_a_prompt(slow):
    """A comment with every chunk, that counts up to all of the prompt."""
    with slow.stream(messages=[{"role": "user", "content": words(600)}], max_tokens=3, temperature=0) as s:
        lines = [line for _, line in s.lines()]
    progress = [[int(x) for x in line.split()[2].split("/")] for line in lines if line.startswith(": prefill ")]
    assert len(progress) >= 3 and progress == sorted(progress) and progress[-1][0] == progress[-1][1] >= 600
    assert {total for _, total in progress} == {progress[-1][1]}
    assert lines[-1] == "data: [DONE]" and lines.index(": prefill %d/%d" % tuple(progress[-1])) < lines.index(
        next(line for line in lines if line.startswith("data: ")))


def test_signs_of_life_while_a_prompt_is_computed(sluice, slow, tmp_path):
    """One chunk that takes long: progress within it, or a comment, every five seconds at least."""
    with serving(sluice, slow.model, "--cpu", "ref", "--chunk", "1024", mem="700M", ctx=4096, log=tmp_path / "log") as s:
        with s.stream(messages=[{"role": "user", "content": words(60)}], max_tokens=1, temperature=0) as stream:
            begin = time.monotonic()
            lines = list(stream.lines())
        prefill = next(at for at, line in lines if line.startswith("data: ")) - begin
        times = [begin, *(at for at, _ in lines)]
        assert lines[-1][1] == "data: [DONE]" and max(b - a for a, b in zip(times, times[1:])) < 5.5
        assert s.stop() == 0
    if prefill < 5.5:
        pytest.skip(f"this machine computes the prompt in {prefill:.1f} s: nothing had to be said meanwhile")


def test_leavers_are_noticed_in_every_phase(slow):
    """Within a second the work has ended, and the next one is served."""
    def left_after(stream, phase):
        gone = slow.metrics()["clients_gone_total"]
        begin = time.monotonic()
        stream.reset() if phase == "prefill" else stream.close()
        slow.wait_for(lambda m: m["clients_gone_total"] == gone + 1 and m["busy"] == 0 and m["queue_length"] == 0, 3)
        assert time.monotonic() - begin < 1.5  # a second, and what the metrics take amid the load

    for stream in (True, False):  # while the prompt is computed
        s = slow.stream(messages=[{"role": "user", "content": words(3000)}], stream=stream)
        slow.wait_for(lambda m: m["busy"] == 1)
        time.sleep(0.5)
        left_after(s, "prefill")
    s = slow.endless()  # in the answer
    for _, line in s.lines():
        if line.startswith("data: {") and '"content"' in line:
            break
    left_after(s, "answer")
    # In the queue: the one before goes on.
    with slow.endless() as first:
        slow.wait_for(lambda m: m["busy"] == 1)
        second = slow.endless()
        slow.wait_for(lambda m: m["queue_length"] == 1)
        second.close()
        slow.wait_for(lambda m: m["queue_length"] == 0, 1.5)
        assert slow.metrics()["busy"] == 1
        assert next(first.lines())
    slow.idle()


def test_a_full_queue(slow):
    streams = []
    try:
        streams.append(slow.endless())
        slow.wait_for(lambda m: m["busy"] == 1)
        for i in range(2):
            streams.append(slow.endless())
            slow.wait_for(lambda m: m["queue_length"] == i + 1)
        status, headers, text = slow.call("/v1/chat/completions", {"model": "demo", "messages": PLAIN[0]["messages"]})
        assert status == 429 and int(headers["Retry-After"]) > 0
        assert json.loads(text)["error"]["code"] == "rate_limit_exceeded"
        status, headers, text = slow.call("/v1/messages", {"model": "demo", "messages": PLAIN[0]["messages"],
                                                           "max_tokens": 3})
        assert status == 429 and json.loads(text)["error"]["type"] == "rate_limit_error"
        # What needs no model is answered all the same.
        assert slow.get("/health") and slow.memory()["accounts"]
    finally:
        for s in streams:
            s.close()
    slow.idle()
    # Clients that repeat what was refused get through.
    with openai.OpenAI(base_url=slow.url + "/v1", api_key="none", max_retries=5, timeout=60) as client, slow.endless() as a:
        slow.wait_for(lambda m: m["busy"] == 1)
        waiting = [slow.endless() for _ in range(2)]
        slow.wait_for(lambda m: m["queue_length"] == 2)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.completions.create, model="demo", prompt="Once", max_tokens=2)
            slow.wait_for(lambda m: m["requests_busy_total"] >= 3)
            for s in (a, *waiting):
                s.close()
            assert answer.result(60).usage.completion_tokens == 2
    slow.idle()


def test_events(slow):
    """What the page shows: phases as they come."""
    c = http.client.HTTPConnection("127.0.0.1", slow.port, timeout=30)
    c.request("GET", "/api/v1/events")
    events = c.getresponse()
    seen = {}
    with slow.stream(messages=[{"role": "user", "content": words(600)}], max_tokens=100, logit_bias=ENDLESS) as s:
        end = time.monotonic() + 60
        while time.monotonic() < end and not {"prefill", "answer"} <= set(seen):
            line = events.readline().decode()
            if line.startswith("data: "):
                e = json.loads(line[6:])
                seen.setdefault(e["phase"], e)
                assert e["prompt_done"] <= e["prompt_total"]
        assert {"prefill", "answer"} <= set(seen)
        list(s.lines())
    events.close()
    c.close()
    slow.idle()


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_a_stop_lets_end_what_is_under_way(sluice, demo_store, tmp_path):
    with serving(sluice, demo_store, log=tmp_path / "log") as s:
        with s.endless(max_tokens=900) as stream:
            lines = stream.lines()
            next(lines)
            waiting = s.endless()
            s.wait_for(lambda m: m["queue_length"] == 1)
            s.process.terminate()
            rest = [line for _, line in lines]
            assert rest[-1] == "data: [DONE]"  # its 900 tokens
            assert waiting.begin() == 503
            waiting.close()
        assert s.process.wait(20) == 0


def test_a_stop_cuts_what_takes_too_long(sluice, slow, tmp_path):
    """Ten seconds; then the work is given up and the stream cut, without an end that could be taken for one."""
    with serving(sluice, slow.model, mem="700M", ctx=4096, log=tmp_path / "log") as s:
        with s.endless() as stream:
            next(stream.lines())
            s.process.terminate()
            begin = time.monotonic()
            assert s.process.wait(30) == 0
            assert 5 < time.monotonic() - begin < 14
            text = b""
            try:
                while more := stream.response.read1(1 << 16):
                    text += more
            except Exception:
                pass
            assert b"[DONE]" not in text
