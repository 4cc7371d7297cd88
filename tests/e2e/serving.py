"""A running `sluice serve`, raw requests to it over sockets, and a model that is slow enough to be caught at work."""
import contextlib
import http.client
import json
import os
import pathlib
import select
import socket
import subprocess
import time

from conftest import ROOT

WEB = "http:" "//"  # no address is meant
EXAMPLES = json.loads((ROOT / "models" / "demo" / "examples.json").read_text())["examples"]
ENDS = (8179, 8181)  # tokens that end an answer of the demo model
ENDLESS = {str(id): -100 for id in ENDS}  # a logit_bias: the answer goes on until the context is full


def free_of_tools(thinking=False):
    """Recorded answers without tools, of prompts that fit a context of 1024."""
    return [e for e in EXAMPLES if "tools" not in e and e["enable_thinking"] == thinking and len(e["prompt_ids"]) < 900]


class Server:
    """`sluice serve` on a port of the kernel's choice. Stopped by its process id, and waited for."""

    def __init__(self, sluice, model, *options, name="demo", mem="64M", ctx=1024, start=subprocess.Popen, log=None):
        self.model = model
        self.log_path = pathlib.Path(log)
        with open(log, "wb") as file:
            self.process = start([str(sluice), "serve", str(model), "--json", "--port", "0", "--mem", str(mem),
                                  "--ctx", str(ctx), "--name", name, *map(str, options)],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file)
        line = self._line(60)
        self.about = json.loads(line) if line else {}
        assert "port" in self.about, line.decode() + self.log()
        self.port, self.name, self.pid = self.about["port"], name, self.process.pid
        self.url = f"{WEB}127.0.0.1:{self.port}"
        self.idle_descriptors = self.descriptors()

    def _line(self, seconds):
        text, end = b"", time.monotonic() + seconds
        while not text.endswith(b"\n") and time.monotonic() < end:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                if not more:
                    break
                text += more
        return text

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self, seconds=30):
        """End it as a user would; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self.process.stdout.close()

    # ---- whole requests

    def call(self, path, body=None, headers=(), timeout=60):
        """(status, headers, text); a body makes it a POST."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            c.request("GET" if body is None else "POST", path, data,
                      {**({} if body is None else {"Content-Type": "application/json"}), **dict(headers)})
            r = c.getresponse()
            return r.status, r.headers, r.read().decode()
        finally:
            c.close()

    def get(self, path):
        status, _, text = self.call(path)
        assert status == 200, text
        return text

    def post(self, path, timeout=60, **body):
        """The answer of a request that succeeds."""
        status, _, text = self.call(path, {"model": self.name, **body}, timeout=timeout)
        assert status == 200, text
        return json.loads(text)

    def chat(self, content, **more):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", messages=messages, **{"temperature": 0, "enable_thinking": False, **more})

    def refused(self, path, status, **body):
        """The error of a request that is refused with this status."""
        got, headers, text = self.call(path, {"model": self.name, **body})
        assert got == status, text
        return json.loads(text)["error"]

    # ---- streams

    def stream(self, path="/v1/chat/completions", timeout=60, receive_bytes=None, **body):
        return Stream(self, path, {"model": self.name, "stream": True, **body}, timeout, receive_bytes)

    def endless(self, **more):
        """A stream that ends when the context is full, and not before."""
        return self.stream(**{"messages": [{"role": "user", "content": "Hello"}], "temperature": 0,
                              "enable_thinking": False, "logit_bias": ENDLESS, **more})

    # ---- what it tells of itself

    def metrics(self):
        lines = (l.split() for l in self.get("/metrics").splitlines() if not l.startswith("#"))
        return {name.removeprefix("sluice_"): float(value) for name, value in lines}

    def memory(self):
        return json.loads(self.get("/api/v1/memory"))

    def wait_for(self, condition, seconds=10):
        """Until a condition of the metrics holds; the metrics then."""
        end = time.monotonic() + seconds
        while True:
            m = self.metrics()
            if condition(m):
                return m
            assert time.monotonic() < end, m
            time.sleep(0.02)

    def idle(self, seconds=20):
        return self.wait_for(lambda m: m["busy"] == 0 and m["queue_length"] == 0 and m["connections"] <= 1, seconds)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_bytes(self):
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return next(int(l.split()[1]) << 10 for l in text.splitlines() if l.startswith("VmRSS:"))


class Stream:
    """A POST whose answer is read as it comes: lines() with the time of each."""

    def __init__(self, server, path, body, timeout=60, receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", server.port))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.socket.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
                             f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data)
        self.response = None

    def begin(self):
        """The status; waits for the head."""
        if not self.response:
            self.response = http.client.HTTPResponse(self.socket, method="POST")
            self.response.begin()
        return self.response.status

    def lines(self):
        """(seconds, text) of every line that is not empty."""
        status = self.begin()
        assert status == 200, self.response.read().decode()
        for line in self.response:
            if line.strip():
                yield time.monotonic(), line.decode().rstrip("\r\n")

    def events(self):
        """The JSON of every data line, up to the end of the connection."""
        for _, line in self.lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[6:])

    def close(self):
        if self.response:
            self.response.close()
        self.socket.close()

    def reset(self):
        """Leave as a client that crashes: with a reset, not with a close."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def text_of(events):
    """The text of a chat stream's events."""
    return "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])


@contextlib.contextmanager
def serving(*args, **more):
    server = Server(*args, **more)
    try:
        yield server
    finally:
        server.kill()


def slow_model(build_dir, folder):
    """A made-up model that takes 10 ms or more a token and 3 ms or more for one of a prompt, on two cores; it has the
    demo model's tokenizer, and says nothing sensible."""
    demo = ROOT / "models" / "demo"
    config = json.loads((demo / "config.json").read_text())
    del config["vision_config"]
    config["quantization"] = {"group_size": 64, "bits": 4}
    config["text_config"].update(
        hidden_size=2048, moe_intermediate_size=1024, shared_expert_intermediate_size=1024, num_experts=8,
        num_experts_per_tok=4, num_hidden_layers=8, layer_types=config["text_config"]["layer_types"][:8],
        num_attention_heads=16, head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32,
        linear_key_head_dim=64, linear_value_head_dim=64, mtp_num_hidden_layers=0)
    (folder / "config.json").write_text(json.dumps(config))
    subprocess.run([build_dir / "sluice-synth", "--config", folder / "config.json", "--tokenizer", demo,
                    folder / "slow"], check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    return folder / "slow"
