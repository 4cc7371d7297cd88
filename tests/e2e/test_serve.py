"""`sluice serve` as people start it, with the demo model: a chat over loopback, keys, what a signal does to a request
that is under way, the budget in the kernel's eyes."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from cgroup import Group, NoGroup
from conftest import ROOT

EXAMPLES = json.loads((ROOT / "models" / "demo" / "examples.json").read_text())["examples"]
OWL = next(e for e in EXAMPLES if not e["enable_thinking"] and "tools" not in e)
STORY = [{"role": "user", "content": "Tell me a story about a fox and an owl."}]


@pytest.fixture(scope="module")
def installed(sluice):
    if not sluice.with_name("sluice-serve").exists():
        pytest.skip("sluice-serve was not built: libmicrohttpd is not there")
    return sluice


class Server:
    """A server on a port of the kernel's choice. Use it in a with statement: it is killed at its end."""

    def __init__(self, sluice, store, *args, start=subprocess.Popen):
        command = [sluice, "serve", store, "--port", "0", "--json", "--ctx", "1024", *map(str, args)]
        self.process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
        line = self.process.stdout.readline()
        self.said = json.loads(line or "{}")
        assert "url" in self.said, line + self.process.communicate()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def open(self, path, body=None, **fields):
        request = urllib.request.Request(self.said["url"] + path, json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json", **fields})
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60)

    def chat(self, messages, **more):
        body = {"model": self.said["model"], "messages": messages, **more}
        return self.open("/v1/chat/completions", body)

    def status(self, path, **fields):
        try:
            return self.open(path, **fields).status
        except urllib.error.HTTPError as e:
            return e.code

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


def test_a_chat_is_answered(installed, demo_store):
    with Server(installed, demo_store, "--mem", "64M", "--name", "owls") as server:
        assert server.said["model"] == "owls" and server.said["plan"]["budget_bytes"] == 64 << 20
        assert json.load(server.open("/v1/models"))["data"][0]["id"] == "owls"
        answer = json.load(server.chat(OWL["messages"], temperature=0, chat_template_kwargs={"enable_thinking": False}))
        assert answer["choices"][0]["message"]["content"] == OWL["answer"]
        assert server.stop(signal.SIGINT) == 0


def test_keys(installed, demo_store, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    keys.chmod(0o600)
    with Server(installed, demo_store, "--mem", "64M", "--api-key-file", keys) as server:
        assert server.status("/v1/models") == 401
        assert server.status("/v1/models", Authorization="Bearer three") == 401
        assert server.status("/v1/models", Authorization="Bearer two") == 200
        assert server.status("/v1/models", **{"X-Api-Key": "one"}) == 200
        assert server.stop() == 0


def test_a_stop_lets_an_answer_end(installed, demo_store):
    with Server(installed, demo_store, "--mem", "64M") as server:
        answer = server.chat(STORY, stream=True, max_tokens=100)
        first = next(line for line in answer if line.startswith(b"data: "))
        server.process.send_signal(signal.SIGTERM)
        rest = answer.read()
        assert b"chat.completion.chunk" in first and rest.endswith(b"data: [DONE]\n\n")
        server.process.communicate(timeout=30)
        assert server.process.returncode == 0
        with pytest.raises(OSError):
            server.open("/health")


def test_a_second_signal_does_not_wait(installed, demo_store):
    # Nothing ends this answer but the context, and one thread in plain C takes its time over that.
    with Server(installed, demo_store, "--mem", "64M", "--threads", "1", "--cpu", "ref") as server:
        answer = server.chat(STORY, stream=True, temperature=2, logit_bias={"0": 0})
        answer.readline()
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        ended = server.process.poll()
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=30)
        if ended is not None:
            pytest.skip("the answer ended before the second signal")
        assert server.process.returncode in (0, 143) and time.monotonic() - begin < 5


def test_a_port_that_is_taken(installed, demo_store):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        r = subprocess.run([installed, "serve", demo_store, "--mem", "64M", "--ctx", "1024", "--port", str(port)],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (r.returncode, r.stdout) == (1, "") and f"port {port}: Address already in use" in r.stderr


@pytest.fixture(scope="module")
def smallest(installed, demo_store):
    """The smallest budget, in bytes. The program's own memory is counted in pages as they are in use, which differs
    a little from run to run: so a little more."""
    r = subprocess.run([installed, "serve", demo_store, "--ctx", "1024", "--mem", "8M", "--port", "0", "--json"],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    error = json.loads(r.stdout)["error"]
    assert r.returncode == 3 and error["code"] == "budget"
    size = error["message"].rsplit("The smallest budget that works here: --mem ", 1)[1]
    assert size.endswith("K")
    return (int(size[:-1]) + 64) << 10


def test_the_smallest_budget_works(installed, demo_store, smallest):
    # The same, whether it is asked for by one that is too small or by one that is not.
    with Server(installed, demo_store, "--mem", "64M") as server:
        assert abs(server.said["plan"]["smallest_bytes"] - smallest) <= 256 << 10
    with Server(installed, demo_store, "--mem", f"{smallest >> 10}K") as server:
        answer = json.load(server.chat(OWL["messages"], temperature=0, max_tokens=3))
        assert answer["usage"]["completion_tokens"] == 3 and server.stop() == 0


@pytest.mark.parametrize("mem", ["smallest", "64M"])
def test_the_budget_in_a_control_group(installed, demo_store, smallest, mem):
    limit = smallest if mem == "smallest" else int(mem[:-1]) << 20
    try:
        group = Group(limit)
    except NoGroup as e:
        pytest.skip(f"no memory control group: {e}")
    with group, Server(installed, demo_store, "--mem", f"{limit >> 10}K", start=group.start) as server:
        answers = []

        def ask(seed):
            answers.append(server.chat(STORY, stream=seed % 2 == 0, max_tokens=20, seed=seed, temperature=1).read())

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        peak = pathlib.Path(f"/proc/{server.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        assert len(answers) == 4 and all(answers)
        assert server.stop() == 0
        assert group.failures() == {"failed": 0, "killed": 0}, f"VmHWM {peak} KiB of {limit >> 10}"
