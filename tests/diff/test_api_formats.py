"""The formats of the API against the vendors' own clients.

    pip install -r tests/requirements.txt
    pytest tests/diff/test_api_formats.py         (SL_API_DRIVER: the program, where it is elsewhere)

A client talks to a server of Python on loopback, which hands the request's body to api_driver together with a script
of events, and gives back what it prints: both directions go through our code.
"""
import http.server
import json
import os
import subprocess
import threading

import pytest

openai = pytest.importorskip("openai", reason="needs openai==3.57.0")
pydantic = pytest.importorskip("pydantic", reason="comes with openai")
anthropic = pytest.importorskip("anthropic", reason="needs anthropic==2.14.0")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIALECTS = {"/v1/chat/completions": "chat", "/v1/completions": "completions", "/v1/responses": "responses",
            "/v1/messages": "messages", "/v1/messages/count_tokens": "count", "/v1/models": "models"}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# Everything that must survive the way into a JSON string and into a line of an event stream.
HARD = "a\"b\\c\n\r\t\u0000\u001f\u2028\u2029é漢字🦙 data: x\n\nevent: y"


def driver():
    build = os.environ.get("SLUICE_BUILD", os.path.join(ROOT, "build", "check"))
    path = os.environ.get("SL_API_DRIVER", os.path.join(build, "tests", "diff", "api_driver"))
    if not os.path.exists(path):
        pytest.skip("api_driver is not built (SL_API_DRIVER=%s)" % path)
    return path


def run(dialect, body, events):
    """What the driver says of the request, and the bytes of the answer."""
    text = json.dumps(events).encode()
    out = subprocess.run([driver(), dialect], input=b"%d\n" % len(body) + body + text, stdout=subprocess.PIPE,
                         check=True, timeout=60).stdout
    line, _, answer = out.partition(b"\n")
    return json.loads(line), answer


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        about, answer = run(DIALECTS[self.path.partition("?")[0]], body, self.server.events)
        self.server.seen.append(about)
        kind = "text/event-stream" if about.get("stream") and about["status"] == 200 else "application/json"
        self.send_response(about["status"])
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        # In small pieces, so that events and characters are cut anywhere.
        for i in range(0, len(answer), 113):
            self.wfile.write(answer[i:i + 113])

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self):
        self.answer(b"")

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as s:
        s.events, s.seen = [], []
        s.openai = openai.OpenAI(base_url="http:" + "//127.0.0.1:%d/v1" % s.server_address[1], api_key="k",
                                 max_retries=0)
        s.anthropic = anthropic.Anthropic(base_url="http:" + "//127.0.0.1:%d" % s.server_address[1],
                                          api_key="k", max_retries=0)
        thread = threading.Thread(target=s.serve_forever, daemon=True)
        thread.start()
        yield s
        s.shutdown()
        thread.join()


def answer(*events, how="stop", stop=None, completion=9, reasoning=0):
    return [["prefill", 5, 20], ["prefill", 20, 20], ["begin", 20, 4], *events,
            ["finish", how, stop, 20, 4, completion, reasoning]]


def rendered(server):
    return json.loads(server.seen[-1]["render"])


# ---- chat completions ----------------------------------------------------------------------------------------------

def chat(server, **more):
    args = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], **more}
    return server.openai.chat.completions.create(**args)


CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Look outside.",
                                                "parameters": WEATHER}}]


def test_chat(server):
    server.events = answer(["reasoning", "hm" + HARD], ["text", "Hello "], ["text", HARD], reasoning=3)
    got = chat(server, temperature=0.5, seed=7, stop=["x"], user="me", metadata={"a": "b"})
    choice = got.choices[0]
    assert got.object == "chat.completion" and got.id.startswith("chatcmpl-") and got.created == 1700000000
    assert got.model == "demo" and choice.finish_reason == "stop" and choice.index == 0
    assert choice.message.role == "assistant" and choice.message.content == "Hello " + HARD
    assert choice.message.reasoning_content == "hm" + HARD
    assert choice.message.tool_calls is None and choice.logprobs is None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (20, 9, 29)
    assert got.usage.prompt_tokens_details.cached_tokens == 4
    assert got.usage.completion_tokens_details.reasoning_tokens == 3
    assert server.seen[-1]["n_ignored"] == 2  # user, metadata


def test_chat_stream(server):
    server.events = answer(["reasoning", "hm"], ["text", "Hello "], ["text", HARD], how="length", reasoning=3)
    chunks = list(chat(server, stream=True, stream_options={"include_usage": True}))
    assert len({c.id for c in chunks}) == 1 and all(c.object == "chat.completion.chunk" for c in chunks)
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == "Hello " + HARD
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "hm"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == "length" and set(reasons[:-1]) == {None}
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 29
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_chat_stream_without_usage(server):
    server.events = answer(["text", "a"])
    assert all(c.choices and c.usage is None for c in chat(server, stream=True))


@pytest.mark.parametrize("stream", [False, True])
def test_chat_tools(server, stream):
    arguments = ['{"city":"Zürich"}', json.dumps({"city": HARD})]
    server.events = answer(["text", "Let me see."], ["call", "weather", arguments[0]],
                           ["call", "weather", arguments[1]])
    if stream:
        with server.openai.chat.completions.stream(model="demo", tools=CHAT_TOOLS,
                                                   messages=[{"role": "user", "content": "hi"}]) as events:
            got = events.get_final_completion()
    else:
        got = chat(server, tools=CHAT_TOOLS)
    message = got.choices[0].message
    assert got.choices[0].finish_reason == "tool_calls" and message.content == "Let me see."
    assert [c.function.name for c in message.tool_calls] == ["weather"] * 2
    assert [c.function.arguments for c in message.tool_calls] == arguments
    assert len({c.id for c in message.tool_calls}) == 2
    assert rendered(server)["tools"] == CHAT_TOOLS


def test_chat_only_tools(server):
    server.events = answer(["call", "weather", "{}"])
    message = chat(server, tools=CHAT_TOOLS).choices[0].message
    assert message.content is None and len(message.tool_calls) == 1


@pytest.mark.parametrize("script", [[["refuse_call"]], []])
def test_chat_call_that_is_none(server, script):
    name = "weather" if script else "climate"  # arguments that do not fit; no such tool
    server.events = script + answer(["call", name, '{"town":1}'])
    choice = chat(server, tools=CHAT_TOOLS).choices[0]
    assert choice.finish_reason == "stop" and choice.message.tool_calls is None
    assert json.loads(choice.message.content) == {"name": name, "arguments": {"town": 1}}


def test_chat_conversation_goes_back(server):
    """What the client was given is sent again, as agents do."""
    server.events = answer(["reasoning", "hm"], ["call", "weather", '{"city": "Bern"}'])
    message = chat(server, tools=CHAT_TOOLS).choices[0].message
    server.events = answer(["text", "Sunny."])
    chat(server, tools=CHAT_TOOLS, messages=[
        {"role": "developer", "content": "Be brief."}, {"role": "user", "content": [
            {"type": "text", "text": "Weather in "}, {"type": "text", "text": "Bern?"}]},
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}])
    assert rendered(server)["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Bern?"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
            {"id": message.tool_calls[0].id, "type": "function",
             "function": {"name": "weather", "arguments": {"city": "Bern"}}}]},
        {"role": "tool", "content": "sun", "tool_call_id": message.tool_calls[0].id}]


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs(server, stream):
    server.events = answer(["token", list(b"Hi"), -0.25, [list(b"Hi"), -0.25], [list(b"Ho"), -1.5]], ["text", "Hi"],
                           ["token", list("é".encode()[:1]), -1e30], ["token", list("é".encode()[1:]), -0.5],
                           ["text", "é"], ["token", list(b"!"), -3])
    got = chat(server, logprobs=True, top_logprobs=1, stream=stream)
    if stream:
        content = [t for c in got if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    else:
        content = got.choices[0].logprobs.content
    assert [bytes(t.bytes) for t in content] == [b"Hi", b"\xc3", b"\xa9", b"!"]
    assert [t.token for t in content] == ["Hi", "\ufffd", "\ufffd", "!"]
    assert [t.logprob for t in content] == [-0.25, -9999.0, -0.5, -3.0]
    assert [[(a.token, a.logprob) for a in t.top_logprobs] for t in content] == [[("Hi", -0.25)], [], [], []]


class City(pydantic.BaseModel):
    name: str
    people: int


def test_chat_schema(server):
    server.events = answer(["text", '{"name":"Bern",'], ["text", '"people":134000}'])
    got = server.openai.chat.completions.parse(model="demo", messages=[{"role": "user", "content": "hi"}],
                                               response_format=City)
    assert got.choices[0].message.parsed == City(name="Bern", people=134000)
    schema = json.loads(server.seen[-1]["schema"])
    assert schema["required"] == ["name", "people"] and schema["additionalProperties"] is False


def test_chat_errors(server):
    with pytest.raises(openai.BadRequestError) as e:
        chat(server, n=2)
    assert (e.value.status_code, e.value.param, e.value.code) == (400, "n", "unsupported_parameter")
    with pytest.raises(openai.BadRequestError) as e:
        chat(server, messages=[{"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]}])
    assert (e.value.param, e.value.code) == ("messages[0].content[1].type", "unsupported_content")
    assert "image_url" in e.value.message
    server.events = answer() [:-1] + [["failure", "the drive is gone"]]
    with pytest.raises(openai.InternalServerError) as e:
        chat(server)
    assert "the drive is gone" in str(e.value)


def test_chat_error_in_the_middle(server):
    server.events = answer(["text", "Hel"])[:-1] + [["failure", "the drive is gone"]]
    text = ""
    with pytest.raises(openai.APIError, match="the drive is gone"):
        for chunk in chat(server, stream=True):
            text += chunk.choices[0].delta.content
    assert text == "Hel"


def test_chat_answer_that_does_not_fit(server):
    server.events = [["store", 64]] + answer(["text", "x" * 40], ["text", "x" * 40])
    with pytest.raises(openai.InternalServerError) as e:
        chat(server)
    assert e.value.code == "answer_too_large" and "63 bytes" in e.value.message
    assert len(list(chat(server, stream=True))) == 4  # a stream collects nothing


# ---- completions ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("stream", [False, True])
def test_completions(server, stream):
    server.events = answer(["token", list(b"a"), -0.5, [list(b"a"), -0.5], [[0xc3], -0.75]], ["text", "a"],
                           ["token", list(HARD.encode()[:40]), -1], ["text", HARD])
    got = server.openai.completions.create(model="demo", prompt="once", logprobs=2, stream=stream, max_tokens=5)
    parts = list(got) if stream else [got]
    assert all(p.object == "text_completion" for p in parts)
    assert "".join(p.choices[0].text for p in parts) == "a" + HARD
    assert parts[-1].choices[0].finish_reason == "stop"
    logprobs = [p.choices[0].logprobs for p in parts if p.choices[0].logprobs]
    assert [t for l in logprobs for t in l.token_logprobs] == [-0.5, -1]
    assert [t for l in logprobs for t in l.text_offset] == [0, 1]
    assert logprobs[0].tokens[0] == "a" and logprobs[0].top_logprobs[0] == {"a": -0.5, "bytes:\\xc3": -0.75}
    if not stream:
        assert got.usage.total_tokens == 29


def test_completions_prompts(server):
    server.events = answer(["text", "a"])
    server.openai.completions.create(model="demo", prompt=[1, 2, 3])
    with pytest.raises(openai.BadRequestError) as e:
        server.openai.completions.create(model="demo", prompt=[1, 2, 1000])
    assert e.value.param == "prompt[2]"
    with pytest.raises(openai.BadRequestError) as e:
        server.openai.completions.create(model="demo", prompt=["a", "b"])
    assert e.value.param == "prompt"


# ---- responses -----------------------------------------------------------------------------------------------------

RESPONSES_TOOLS = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}]
RESPONSES_EVENTS = answer(["reasoning", "hm"], ["text", "Let me "], ["text", "see." + HARD],
                          ["call", "weather", '{"city":"Bern"}'], ["call", "weather", '{"city":"Rom"}'],
                          reasoning=3)


def check_response(got):
    assert got.object == "response" and got.status == "completed" and got.id.startswith("resp_")
    assert [i.type for i in got.output] == ["reasoning", "message", "function_call", "function_call"]
    assert got.output[0].content[0].text == "hm"
    assert got.output_text == "Let me see." + HARD
    assert [i.arguments for i in got.output[2:]] == ['{"city":"Bern"}', '{"city":"Rom"}']
    assert len({i.id for i in got.output}) == 4 and len({i.call_id for i in got.output[2:]}) == 2
    assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.total_tokens) == (20, 9, 29)
    assert got.usage.input_tokens_details.cached_tokens == 4
    assert got.usage.output_tokens_details.reasoning_tokens == 3


def test_responses(server):
    server.events = RESPONSES_EVENTS
    got = server.openai.responses.create(model="demo", input="hi", instructions="Be brief.", tools=RESPONSES_TOOLS)
    check_response(got)
    assert rendered(server)["messages"] == [{"role": "system", "content": "Be brief."},
                                            {"role": "user", "content": "hi"}]
    assert rendered(server)["tools"][0]["function"]["parameters"] == WEATHER


def test_responses_stream(server):
    server.events = RESPONSES_EVENTS
    with server.openai.responses.stream(model="demo", input="hi", tools=RESPONSES_TOOLS) as stream:
        events = list(stream)  # the helper checks the order as it puts the answer together
        check_response(stream.get_final_response())
    types = [e.type for e in events]
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] == "response.completed"
    assert [e.sequence_number for e in events] == list(range(len(events)))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == "Let me see." + HARD
    for name in ("output_item.added", "content_part.added", "content_part.done", "output_item.done",
                 "output_text.done", "reasoning_text.delta", "reasoning_text.done",
                 "function_call_arguments.delta", "function_call_arguments.done"):
        assert "response." + name in types


def test_responses_conversation_goes_back(server):
    server.events = RESPONSES_EVENTS
    got = server.openai.responses.create(model="demo", input="hi", tools=RESPONSES_TOOLS)
    server.events = answer(["text", "Sunny."])
    items = [{"role": "user", "content": "hi"}] + [i.model_dump(exclude_none=True) for i in got.output]
    items += [{"type": "function_call_output", "call_id": i.call_id, "output": "sun"} for i in got.output[2:]]
    server.openai.responses.create(model="demo", input=items, tools=RESPONSES_TOOLS)
    assert [m["role"] for m in rendered(server)["messages"]] == ["user", "assistant", "tool", "tool"]
    said = rendered(server)["messages"][1]
    assert said["content"] == "Let me see." + HARD and said["reasoning_content"] == "hm"
    assert [c["function"]["arguments"]["city"] for c in said["tool_calls"]] == ["Bern", "Rom"]


@pytest.mark.parametrize("stream", [False, True])
def test_responses_cut_and_logprobs(server, stream):
    server.events = answer(["token", list(b"Hi"), -0.5, [list(b"Hi"), -0.5]], ["text", "Hi"],
                           ["token", list(b"!"), -1], how="length")
    args = {"model": "demo", "input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 1,
            "max_output_tokens": 2}
    if stream:
        events = list(server.openai.responses.create(**args, stream=True))
        assert events[-1].type == "response.incomplete"
        deltas = [t.token for e in events if e.type == "response.output_text.delta" for t in e.logprobs]
        assert deltas == ["Hi", "!"]
        assert [t.token for e in events if e.type == "response.output_text.done" for t in e.logprobs] == deltas
        got = events[-1].response
    else:
        got = server.openai.responses.create(**args)
    assert got.status == "incomplete" and got.incomplete_details.reason == "max_output_tokens"
    assert got.output[0].status == "incomplete"
    assert [t.token for t in got.output[0].content[0].logprobs] == ["Hi", "!"]


def test_responses_schema(server):
    server.events = answer(["text", '{"name":"Bern","people":134000}'])
    got = server.openai.responses.parse(model="demo", input="hi", text_format=City)
    assert got.output_parsed == City(name="Bern", people=134000)
    assert json.loads(server.seen[-1]["schema"])["required"] == ["name", "people"]


def test_responses_errors(server):
    with pytest.raises(openai.BadRequestError) as e:
        server.openai.responses.create(model="demo", input="hi", previous_response_id="resp_1")
    assert e.value.param == "previous_response_id"
    server.events = answer(["text", "Hel"])[:-1] + [["failure", "the drive is gone"]]
    events = list(server.openai.responses.create(model="demo", input="hi", stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.status == "failed"
    assert "the drive is gone" in events[-1].response.error.message
    server.events = [["failure", "the drive is gone"]]
    events = list(server.openai.responses.create(model="demo", input="hi", stream=True))
    assert [e.type for e in events] == ["error"] and "the drive is gone" in events[0].message


# ---- messages ------------------------------------------------------------------------------------------------------

MESSAGES_TOOLS = [{"name": "weather", "description": "Look outside.", "input_schema": WEATHER}]
MESSAGES_EVENTS = answer(["reasoning", "hm"], ["text", "Let me "], ["text", "see." + HARD],
                         ["call", "weather", '{"city":"Bern"}'], ["call", "weather", json.dumps({"city": HARD})],
                         reasoning=3)


def messages(server, **more):
    args = {"model": "demo", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}], **more}
    return server.anthropic.messages.create(**args)


def check_message(got):
    assert got.type == "message" and got.role == "assistant" and got.id.startswith("msg_")
    assert [b.type for b in got.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert got.content[0].thinking == "hm" and got.content[0].signature
    assert got.content[1].text == "Let me see." + HARD
    assert [b.input for b in got.content[2:]] == [{"city": "Bern"}, {"city": HARD}]
    assert len({b.id for b in got.content[2:]}) == 2
    assert got.stop_reason == "tool_use" and got.stop_sequence is None
    assert (got.usage.input_tokens, got.usage.cache_read_input_tokens, got.usage.output_tokens) == (16, 4, 9)


def test_messages(server):
    server.events = MESSAGES_EVENTS
    got = messages(server, tools=MESSAGES_TOOLS, thinking={"type": "enabled", "budget_tokens": 1024},
                   system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    check_message(got)
    assert rendered(server)["enable_thinking"] is True
    assert rendered(server)["messages"][0] == {"role": "system", "content": "Be brief."}
    assert rendered(server)["tools"] == CHAT_TOOLS


def test_messages_stream(server):
    server.events = MESSAGES_EVENTS
    with server.anthropic.messages.stream(model="demo", max_tokens=99, tools=MESSAGES_TOOLS,
                                          messages=[{"role": "user", "content": "hi"}]) as stream:
        types = [e.type for e in stream]
        check_message(stream.get_final_message())
    assert types[0] == "message_start" and types[-1] == "message_stop"
    assert types.count("content_block_start") == types.count("content_block_stop") == 4


@pytest.mark.parametrize("how, stop, reason", [("stop", None, "end_turn"), ("length", None, "max_tokens"),
                                               ("stop_string", "END", "stop_sequence"),
                                               ("context", None, "model_context_window_exceeded")])
@pytest.mark.parametrize("stream", [False, True])
def test_messages_stop_reasons(server, stream, how, stop, reason):
    server.events = answer(["text", "a"], how=how, stop=stop)
    got = messages(server, stream=stream, stop_sequences=["END"])
    if stream:
        got = [e for e in got if e.type == "message_delta"][0].delta
    assert got.stop_reason == reason and got.stop_sequence == stop


def test_messages_conversation_goes_back(server):
    server.events = MESSAGES_EVENTS
    said = messages(server, tools=MESSAGES_TOOLS).content
    server.events = answer(["text", "Sunny."])
    messages(server, tools=MESSAGES_TOOLS, messages=[
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": said},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": said[2].id, "content": [{"type": "text", "text": "sun"}]},
            {"type": "tool_result", "tool_use_id": said[3].id, "content": "no such city", "is_error": True},
            {"type": "text", "text": "And now?"}]}])
    got = rendered(server)["messages"]
    assert [m["role"] for m in got] == ["user", "assistant", "tool", "tool", "user"]
    assert got[1]["reasoning_content"] == "hm" and got[1]["content"] == "Let me see." + HARD
    assert [c["function"]["arguments"] for c in got[1]["tool_calls"]] == [{"city": "Bern"}, {"city": HARD}]
    assert [m["content"] for m in got[2:]] == ["sun", "Error: no such city", "And now?"]
    assert [m["tool_call_id"] for m in got[2:4]] == [said[2].id, said[3].id]


def test_messages_schema(server):
    server.events = answer(["text", '{"name":"Bern","people":134000}'])
    got = server.anthropic.messages.parse(model="demo", max_tokens=99, output_format=City,
                                          messages=[{"role": "user", "content": "hi"}])
    assert got.parsed_output == City(name="Bern", people=134000)
    assert json.loads(server.seen[-1]["schema"])["required"] == ["name", "people"]


def test_messages_errors(server):
    with pytest.raises(anthropic.BadRequestError) as e:
        messages(server, messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}])
    assert e.value.body["error"]["type"] == "invalid_request_error"
    assert "messages[0].content[0].type" in e.value.body["error"]["message"]
    server.events = answer(["text", "Hel"])[:-1] + [["failure", "the drive is gone"]]
    with pytest.raises(anthropic.APIStatusError, match="the drive is gone"):
        list(messages(server, stream=True))


def test_count_tokens(server):
    server.events = [321]
    got = server.anthropic.messages.count_tokens(model="demo", messages=[{"role": "user", "content": "hi"}],
                                                 tools=MESSAGES_TOOLS)
    assert got.input_tokens == 321


# ---- models --------------------------------------------------------------------------------------------------------

def test_models(server):
    assert [m.id for m in server.openai.models.list()] == ["demo", "other"]
    got = list(server.anthropic.models.list())
    assert [m.id for m in got] == ["demo", "other"] and got[0].type == "model"
    assert got[0].created_at.isoformat() == "2023-11-14T22:13:20+00:00"
