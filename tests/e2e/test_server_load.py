"""The local server under load and among clients that behave badly: 64 streams at a time inside a control group whose limit
is the budget, only the refusals that are promised, nothing that grows, and every answer that of the model.

    pytest tests/e2e/test_server_load.py          (SL_LOAD_SECONDS: how long the load lasts, 60)
"""
import collections
import concurrent.futures
import json
import os
import random
import socket
import time

import pytest

from cgroup import Group, NoGroup
from serving import Stream, free_of_tools, serving, text_of

SECONDS = float(os.environ.get("SL_LOAD_SECONDS", 60))
MIB = 1 << 20
MEM = 48 * MIB  # less than the model and the server take at their largest
CLIENTS = 64
ANSWERS = [e for e in free_of_tools() if len(e["prompt_ids"]) < 120]
REFUSALS = {429, 503}


@pytest.fixture(scope="module")
def group():
    try:
        with Group(MEM) as g:
            yield g
    except NoGroup as e:
        pytest.skip(f"no memory control group: {e}")


def body_of(example, **more):
    return {"model": "demo", "messages": example["messages"], "temperature": 0, "enable_thinking": False, **more}


# ---- clients of the load; each does one thing and says what came of it ---------------------------------------------


def finish(stream, example, wait=0.0):
    """(what happened, status) of a stream that is read to its end."""
    status = stream.begin()
    if status != 200:
        assert int(stream.response.headers["Retry-After"]) > 0 and json.loads(stream.response.read())["error"]
        return "refused", status
    lines = []
    for _, line in stream.lines():
        lines.append(line)
        if wait:
            time.sleep(wait)
    assert lines[-1] == "data: [DONE]", lines[-1]
    events = [json.loads(l[6:]) for l in lines if l.startswith("data: {")]
    assert text_of(events) == example["answer"]
    return "answered", status


def reader(server, r):
    example = r.choice(ANSWERS)
    with Stream(server, "/v1/chat/completions", body_of(example, stream=True), 120) as s:
        return finish(s, example)


def slow_reader(server, r):
    example = r.choice(ANSWERS)
    with Stream(server, "/v1/chat/completions", body_of(example, stream=True), 120, receive_bytes=2048) as s:
        return finish(s, example, 0.02)


def whole_answer(server, r):
    example = r.choice(ANSWERS)
    status, headers, text = server.call("/v1/chat/completions", body_of(example), timeout=120)
    if status == 200:
        assert json.loads(text)["choices"][0]["message"]["content"] == example["answer"]
        return "answered", status
    assert int(headers["Retry-After"]) > 0
    return "refused", status


def leaver(server, r):
    with Stream(server, "/v1/chat/completions", body_of(r.choice(ANSWERS), stream=True)) as s:
        time.sleep(r.uniform(0, 0.3))
        if r.random() < 0.5:
            s.reset()
    return "left", 0


def half_a_body(server, r):
    with socket.create_connection(("127.0.0.1", server.port), 30) as s:
        s.sendall((f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
                   "Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n{\"model\":").encode())
        time.sleep(r.uniform(0.1, 1))
    return "left", 0


def bad_request(server, r):
    status, _, text = server.call("/v1/chat/completions", bombs(r)[0], timeout=30)
    assert status in {400, 413} | REFUSALS and json.loads(text)["error"]
    return "refused", status


def bombs(r=None):
    """Bodies that are small and would be large, or deep, or slow, if they were believed."""
    n = 200_000
    ask = b'{"model":"demo","messages":[{"role":"user","content":%s}]}'
    all = [b"[" * n, b'{"a":' * n, ask % (b"[" * 1000 + b"]" * 1000), b"[" + b"0," * n + b"0]", ask % (b"1" * n),
           b'{"model":"demo","messages":[' + b'{"role":"user","content":"a"},' * 9000 + b'{"role":"user"}]}',
           ask % b'"' + b"\\u0000" * 30000, b"{" + b",".join(b'"k%d":1' % i for i in range(20000)) + b"}",
           ask % b'"' + b"\xff" * n + b'"', b"1e" + b"9" * n, b" " * n, b'{"model":"demo","tools":[' + b"{}," * 5000 + b"{}]}",
           json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x"}], "response_format": {
               "type": "json_schema", "json_schema": {"name": "x", "schema": {
                   "type": "string", "pattern": "^(((a{1,99}){1,99}){1,99}){1,99}$"}}}}).encode(),
           json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x"}], "response_format": {
               "type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}}).encode()]
    return [r.choice(all)] if r else all


KINDS = [(reader, 44), (whole_answer, 6), (slow_reader, 4), (leaver, 4), (half_a_body, 3), (bad_request, 3)]


def run_load(server, seconds):
    """CLIENTS at a time, each one thing after another; counts of (kind, what happened, status)."""
    counts, end = collections.Counter(), time.monotonic() + seconds

    def client(i):
        r = random.Random(i)
        mine = collections.Counter()
        kind = [k for k, n in KINDS for _ in range(n)][i]
        while time.monotonic() < end:
            what = kind(server, r)
            mine[(kind.__name__, *what)] += 1
            if what[1] in REFUSALS:
                time.sleep(r.uniform(0.1, 0.5))  # as asked, though sooner
        return mine

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for c in pool.map(client, range(CLIENTS)):
            counts += c
    return counts


def held(server):
    """What must not grow, when nothing is under way: descriptors are those of the beginning again, and resident bytes."""
    server.idle(60)
    end = time.monotonic() + 5  # connections that were refused linger
    while server.descriptors() != server.idle_descriptors:
        assert time.monotonic() < end, (server.descriptors(), server.idle_descriptors)
        time.sleep(0.05)
    return server.resident_bytes()


def test_64_clients_inside_the_budget(sluice, demo_store, group, tmp_path, record_property):
    log = tmp_path / "log"
    with serving(sluice, demo_store, "--queue", "32", "--connections", "80", mem=f"{MEM // MIB}M", log=log, start=group.start) as s:
        run_load(s, min(5, SECONDS / 4))  # warm
        resident = held(s)
        before = s.metrics()
        counts = run_load(s, SECONDS)
        resident_after, memory = held(s), s.memory()
        after = s.metrics()
        assert s.stop() == 0
        assert group.failures() == {"failed": 0, "killed": 0}
        peak = group.peak_bytes()
    by_what = collections.Counter()
    for (_, what, status), n in counts.items():
        by_what[what, status] += n
    grew = {k: after[k] - before[k] for k in after}
    for name, value in (("counts", dict(by_what)), ("seconds", SECONDS), ("peak_bytes", peak),
                        ("resident_bytes", (resident, resident_after))):
        record_property(name, str(value))
        print(name, value)
    assert resident_after - resident < MIB
    assert peak is None or peak <= MEM
    assert memory["kernel"]["peak_bytes"] <= MEM
    # Everybody was served: who waited and who was told to come back.
    assert by_what["answered", 200] > CLIENTS and by_what["refused", 429] > 0
    for kind, _ in KINDS:
        assert any(n for (k, *_), n in counts.items() if k == kind.__name__), kind
    # The server counted what the clients saw; a client that left has not seen its refusal.
    left = by_what["left", 0]
    assert by_what["refused", 429] <= grew["requests_busy_total"] <= by_what["refused", 429] + left
    answered = by_what["answered", 200]
    asked_badly = sum(n for (k, _, status), n in counts.items() if k == "bad_request" and status not in REFUSALS)
    assert answered <= grew["requests_total"] <= answered + asked_badly + left


# ---- one at a time -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(sluice, demo_store, tmp_path_factory):
    with serving(sluice, demo_store, log=tmp_path_factory.mktemp("load") / "log") as s:
        yield s
        s.idle()
        assert s.stop() == 0


def test_json_bombs(server):
    before = held(server)
    for body in bombs():
        begin = time.monotonic()
        status, _, text = server.call("/v1/chat/completions", body)
        assert status in (400, 413) and json.loads(text)["error"]["message"], (body[:60], status, text)
        assert time.monotonic() - begin < 5, body[:60]
    assert server.chat(ANSWERS[0]["messages"])["choices"][0]["message"]["content"] == ANSWERS[0]["answer"]
    assert held(server) - before < MIB


def send_until_refused(server, head, piece, n):
    """Send a body piece by piece, though nobody wants it; the answer."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as s:
        s.sendall(head)
        sent = 0
        try:
            while sent < n:
                s.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        answer = b""
        try:
            while more := s.recv(65536):
                answer += more
        except OSError:
            pass
        return answer


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_100_mb(server, chunked):
    before = held(server)
    n = 100 * MIB
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {n}"
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Type: application/json\r\n"
            f"{length}\r\n\r\n").encode()
    piece = b"x" * 65536
    begin = time.monotonic()
    answer = send_until_refused(server, head, b"10000\r\n" + piece + b"\r\n" if chunked else piece, n)
    assert answer.startswith(b"HTTP/1.1 413 ") and time.monotonic() - begin < 10
    assert held(server) - before < MIB


def test_floods_of_headers(server):
    before = held(server)
    for i in range(20):
        with socket.create_connection(("127.0.0.1", server.port), 30) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
            try:
                for j in range(20000):
                    s.sendall(b"X-Field-%d: %s\r\n" % (j, b"v" * 50))
            except OSError:
                pass
            try:
                answer = s.recv(65536)
            except OSError:
                answer = b""
            assert answer[:13] in (b"", b"HTTP/1.1 431 "), answer
    assert held(server) - before < MIB


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_takes_nothing_is_cut_and_others_go_on(server, stream):
    """Ten seconds after its buffers are full the session is others' again."""
    long = {} if stream else {"max_tokens": 150, "stream": False}
    n = server.metrics()["requests_total"]
    with server.endless(receive_bytes=1024, logprobs=True, top_logprobs=5, **long):
        server.wait_for(lambda m: m["requests_total"] > n)
        begin = time.monotonic()
        a = server.chat(ANSWERS[0]["messages"])
        assert a["choices"][0]["message"]["content"] == ANSWERS[0]["answer"]
        assert 8 < time.monotonic() - begin < 15
    server.idle()
