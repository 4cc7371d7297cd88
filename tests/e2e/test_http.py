"""The HTTP layer as a client meets it, over raw sockets: what is refused and how, who is let in, limits of size and time,
clients that are slow, leave, or lie about their body, many at once, and the end. The server is
tests/helpers/http_driver.c, with settings of each test.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

WEB = "http:" "//"  # no address is meant


class Driver:
    """A running http_driver. Everything it says is read by say()."""

    def __init__(self, program, *options):
        self.process = subprocess.Popen([program, *map(str, options)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.text = b""
        line = self.say("port ", 10)
        assert line, self.process.stderr.read().decode()
        self.port = int(line.split()[1])

    def say(self, begin, seconds):
        """The next line that begins so, or None when it does not come in time."""
        end = time.monotonic() + seconds
        while True:
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                if line.decode().startswith(begin):
                    return line.decode()
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                return None
            self.text += data

    def connect(self, receive_bytes=None):
        s = socket.socket()
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        s.settimeout(15)
        s.connect(("127.0.0.1", self.port))
        return s

    def send(self, data, receive_bytes=None):
        s = self.connect(receive_bytes)
        s.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
        return s

    def raw(self, data):
        """What comes back for these bytes, up to the end of the connection."""
        with self.send(data) as s:
            return read_all(s)

    def ask(self, target, method="GET", fields="", body=b"", version="1.1"):
        host = "" if "Host:" in fields else f"Host: localhost:{self.port}\r\n"
        head = f"{method} {target} HTTP/{version}\r\n{host}{fields}"
        if body:
            head += f"Content-Length: {len(body)}\r\n"
        return Answer(self.raw((head + "\r\n").encode("latin-1") + body))

    def start(self, target, fields="", receive_bytes=None):
        """Send a GET and return the socket."""
        head = f"GET {target} HTTP/1.1\r\nHost: localhost:{self.port}\r\n{fields}\r\n"
        return self.send(head, receive_bytes)

    def stats(self):
        return json.loads(self.ask("/stats").body)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+)", status)[1]) * 1024

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            out, err = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return out, err


class Answer:
    def __init__(self, raw):
        assert raw, "no answer"
        head, _, self.raw_body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.version, status, _ = (first + " ").split(" ", 2)
        self.status = int(status)
        self.fields = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in self.fields, f"{name} comes twice"
            self.fields[name.lower()] = value
        chunked = self.fields.get("transfer-encoding") == "chunked"
        self.body = unchunk(self.raw_body) if chunked else self.raw_body

    def error(self):
        return json.loads(self.body)["error"]["message"]


def unchunk(data):
    out = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            assert data == b"\r\n"
            return out
        assert len(data) >= n + 2 and data[n:n + 2] == b"\r\n"
        out, data = out + data[:n], data[n + 2:]


def count_answers(raw):
    return len(re.findall(rb"HTTP/1\.1 \d\d\d ", raw))


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := s.recv(65536):
            data += part
    return data


def read_until(s, mark):
    data = b""
    while mark not in data:
        part = s.recv(65536)
        assert part, f"the connection ended after {data!r}"
        data += part
    return data


@pytest.fixture
def driver(build_dir):
    """Start drivers with options; each must end well when it is told to, with nothing on stderr."""
    program = build_dir / "tests" / "e2e" / "http_driver"
    if not program.exists():
        pytest.skip("the server is not built: libmicrohttpd was not found")
    drivers = []

    def start(*options):
        drivers.append(Driver(program, "--sandbox", 1, *options))
        return drivers[-1]

    yield start
    for d in drivers:
        out, err = d.stop()
        assert err == b"" and d.process.returncode == 0
        assert (d.text + out).endswith(b"stopped \n")


def test_every_thread_is_shut_in(driver):
    """The other tests run inside the sandbox: where the kernel has it, no thread is left out."""
    here = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    if "Seccomp:" not in here:
        pytest.skip("this kernel has no seccomp")
    d = driver()
    assert d.ask("/health").status == 200
    threads = list(pathlib.Path(f"/proc/{d.process.pid}/task").iterdir())
    assert len(threads) > 2
    for thread in threads:
        text = (thread / "status").read_text(encoding="ascii")
        assert re.search(r"^Seccomp:\t2$", text, re.M) and re.search(r"^NoNewPrivs:\t1$", text, re.M)


# ---- what is sent -----------------------------------------------------------------------------------


def test_an_answer_says_what_it_must(driver):
    d = driver()
    a = d.ask("/health")
    assert (a.version, a.status, a.body) == ("HTTP/1.1", 200, b"ok")
    assert a.fields["content-length"] == "2"
    assert a.fields["connection"].lower() == "close"
    assert a.fields["cache-control"] == "no-store"
    assert a.fields["x-content-type-options"] == "nosniff"
    assert re.fullmatch("req_[0-9a-f]{16}", a.fields["x-request-id"])
    assert a.fields["x-request-id"] != d.ask("/health").fields["x-request-id"]
    assert not any(name.startswith("access-control") for name in a.fields)


def test_methods_and_versions(driver):
    d = driver()
    for target in ("/health", "/static", "/big?bytes=100000", "/stream"):
        a = d.ask(target, "HEAD")
        assert (a.status, a.raw_body) == (200, b"")
    old = d.ask("/stream", version="1.0")
    assert "transfer-encoding" not in old.fields and old.body.startswith(b"data: 0 ")
    assert Answer(d.raw("GET /health HTTP/1.0\r\n\r\n")).body == b"ok"
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        a = d.ask("/health", method)
        assert a.status == 405 and "POST" in a.fields["allow"]
    for method in ("BREW", "get", "GETX"):
        assert d.ask("/health", method).status == 501
    assert d.ask("/x", "DELETE").status == 200
    assert d.ask("*").status == 400


def test_targets_and_bodies_arrive(driver):
    d = driver()
    a = json.loads(d.ask("/a%20b%2Fc/%C3%A4?x=1&q=a+b%26%41", fields="User-Agent: me\r\n").body)
    assert a["path"] == "/a b/c/\u00e4" and a["query"] == "x=1&q=a+b%26%41"
    assert a["q"] == "a b&A" and a["agent"] == "me" and a["bytes"] == 0
    a = json.loads(d.ask(f"{WEB}localhost:{d.port}/abs?q=1").body)
    assert a["path"] == "/abs" and a["q"] == "1"
    a = json.loads(d.ask("/x", "POST", "Content-Type: Application/JSON; charset=utf-8\r\n", b"{}").body)
    assert a["type"] == "application/json" and a["bytes"] == 2 and a["method"] == "POST"
    body = random.Random(7).randbytes(300000)
    assert d.ask("/echo", "POST", body=body).body == body
    assert d.ask("/echo", "GET", body=b"a body").body == b"a body"
    assert d.ask("/echo", "POST").body == b""


def test_chunked_bodies(driver):
    d = driver("--body", 100000, "--bodies", 100000)
    head = f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = b"".join(b"%x;ext=1\r\n%s\r\n" % (n, b"z" * n) for n in (1, 1000, 65000, 33999))
    a = Answer(d.raw(head.encode() + whole + b"0\r\nTrailer: x\r\n\r\n"))
    assert (a.status, a.body) == (200, b"z" * 100000)
    assert Answer(d.raw(head.encode() + whole + b"1\r\nz\r\n0\r\n\r\n")).status == 413
    for bad in (b"g\r\nx\r\n0\r\n\r\n", b"-1\r\nx\r\n", b"0x1\r\nx\r\n0\r\n\r\n", b"\r\n\r\n",
                b"1\r\nxx\r\n0\r\n\r\n", b" 1\r\nx\r\n0\r\n\r\n"):
        assert Answer(d.raw(head.encode() + bad)).status == 400, bad
    assert Answer(d.raw(head.encode() + b"fffffffffffffffff\r\nx")).status == 413
    assert d.stats()["bodies_bytes"] == 0


def test_expect_100_continue(driver):
    d = driver("--body", 2000, "--bodies", 2000)
    head = "POST /echo HTTP/1.1\r\nHost: localhost:%d\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with d.send(head % (d.port, 5)) as s:
        assert read_until(s, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"hello")
        assert Answer(read_all(s)).body == b"hello"
    assert Answer(d.raw(head % (d.port, 2001))).status == 413  # and no 100 before it


def test_a_handler_that_does_not_answer(driver):
    d = driver()
    assert d.ask("/forget").status == 500
    with d.start("/abort") as s:
        raw = read_all(s)
    assert raw.endswith(b"half\r\n")  # no last chunk: the client knows
    assert d.ask("/none", "POST", body=b"x").status == 404
    a = d.ask("/x", "POST", "Content-Type: Text/X-Unknown; a=b\r\n", b"x" * 100000)
    assert a.status == 415 and "Content-Type" in a.error()
    a = d.ask("/busy", "POST", body=b"x" * 100000)
    assert (a.status, a.fields["retry-after"]) == (429, "7")


# ---- what is refused --------------------------------------------------------------------------------


REFUSED = {
    "bare LF": ("GET / HTTP/1.1\nHost: {host}\n\n", 400),
    "bare LF inside": ("GET / HTTP/1.1\r\nHost: {host}\nX: y\r\n\r\n", 400),
    "bare CR": ("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\rb\r\n\r\n", 400),
    "NUL in the target": ("GET /a\0b HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "NUL in a field": ("GET / HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\n\r\n", 400),
    "escaped NUL": ("GET /a%00b HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "bad escape": ("GET /a%4 HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "folded": ("GET / HTTP/1.1\r\nHost: {host}\r\n x\r\n\r\n", 400),
    "folded into a name": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Lengt: 5\r\n h\r\n\r\nhello", 400),
    "space before the colon": ("GET / HTTP/1.1\r\nHost : {host}\r\n\r\n", 400),
    "no Host": ("GET / HTTP/1.1\r\n\r\n", 400),
    "two Hosts": ("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n", 400),
    "two lengths": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    "lengths in a list": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1, 1\r\n\r\nx", 400),
    "signed length": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: +1\r\n\r\nx", 400),
    "TE and CL": ("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
                  400),
    "CL and TE": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                  400),
    "two TEs": ("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", 400),
    "other TE": ("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "TE in 1.0": ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "huge length": ("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
    "HTTP/0.9": ("GET /\r\n", 400),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "spaces in the target": ("GET /a b HTTP/1.1\r\nHost: {host}\r\n\r\n", 400),
    "TLS": ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "another server": (f"GET {WEB}example.org/ HTTP/1.1\r\nHost: {{host}}\r\n\r\n", 400),
    "other expectation": ("GET / HTTP/1.1\r\nHost: {host}\r\nExpect: x\r\n\r\n", 417),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(driver, name):
    d = driver()
    text, status = REFUSED[name]
    # A second request behind the refused one must not be answered.
    after = "GET /second HTTP/1.1\r\nHost: {host}\r\n\r\n"
    for tail in ("", after):
        raw = d.raw((text + tail).replace("{host}", f"localhost:{d.port}"))
        a = Answer(raw)
        assert a.status == status and a.error()
        assert a.fields["connection"].lower() == "close" and a.fields["x-content-type-options"] == "nosniff"
        assert count_answers(raw) == 1 and b"second" not in raw
    assert d.stats()["requests"] == 1  # this one


def test_nothing_behind_a_request_is_answered(driver):
    d = driver()
    one = f"GET /health HTTP/1.1\r\nHost: localhost:{d.port}\r\n\r\n"
    raw = d.raw(one * 3)
    assert count_answers(raw) == 1 and raw.endswith(b"ok")
    hidden = f"GET /health HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: {len(one)}\r\n\r\n" + one
    assert count_answers(d.raw(hidden)) == 1


def test_floods_of_fields(driver):
    d = driver()
    begin = f"GET /fields HTTP/1.1\r\nHost: localhost:{d.port}\r\n"
    assert Answer(d.raw(begin + "X: y\r\n" * 63 + "\r\n")).status == 200
    assert Answer(d.raw(begin + "X: y\r\n" * 64 + "\r\n")).status == 431
    fill = 16 * 1024 - len(begin) - len("X: \r\n\r\n")
    assert Answer(d.raw(begin + "X: " + "y" * fill + "\r\n\r\n")).status == 200
    assert Answer(d.raw(begin + "X: " + "y" * (fill + 1) + "\r\n\r\n")).status == 431
    assert Answer(d.raw(begin + "X: " + "y" * 1000000)).status == 431
    assert Answer(d.raw(begin + "Cookie: " + "a=b;" * 127 + "\r\n\r\n")).status == 200
    assert Answer(d.raw(begin + "Cookie: " + "a;" * 128 + "\r\n\r\n")).status == 431
    assert d.ask("/x?" + "&" * 31).status == 200
    assert d.ask("/x?" + "&" * 32).status == 414
    assert d.ask("/" + "a" * 2047).status == 200
    assert d.ask("/" + "a" * 2048).status == 414
    worst = begin.replace("/fields", "/fields?" + "a&" * 30 + "a" * 1900)  # all limits at once
    worst += "Cookie: " + "a;" * 127 + "\r\n" + "X: y\r\n" * 62
    assert Answer(d.raw(worst + "\r\n")).status == 200
    worst = worst.replace("X: y", "X: " + "y" * 150)
    assert Answer(d.raw(worst + "Z: " + "z" * (16 * 1024 - len(worst) - 7) + "\r\n\r\n")).status == 431
    worst = worst.replace("X: " + "y" * 150 + "\r\n", "", 1)
    assert Answer(d.raw(worst + "Cookie: " + "z" * (16 * 1024 - len(worst) - 12) + "\r\n\r\n")).status == 431
    worst = worst.replace("a;" * 127, "a;" * 126)
    assert Answer(d.raw(worst + "Cookie: " + "z" * (16 * 1024 - len(worst) - 12) + "\r\n\r\n")).status == 200


# ---- who is let in ----------------------------------------------------------------------------------


def test_host_is_checked(driver):
    d = driver("--host", "chat.example", "--host", "other.example:9000")

    def status(host):
        return d.ask("/health", fields=f"Host: {host}\r\n").status

    for host in (f"localhost:{d.port}", f"127.0.0.1:{d.port}", f"LOCALHOST:{d.port}", "chat.example",
                 "chat.example:8443", "other.example:9000"):
        assert status(host) == 200, host
    for host in ("localhost", "evil.example", f"evil.example:{d.port}", f"127.0.0.2:{d.port}", "other.example",
                 f"localhost.:{d.port}", f"localhost.evil.example:{d.port}", f"[::1]:{d.port}"):
        assert status(host) == 403, host
    for host in ("a b", "a@b", "a/b", "a,b", "", "a:99999"):
        assert status(host) == 400, host


def test_host_on_another_address(driver):
    d = driver("--listen", "::1")
    s = socket.create_connection(("::1", d.port), timeout=10)
    with s:
        s.sendall(f"GET /health HTTP/1.1\r\nHost: [0:0::1]:{d.port}\r\n\r\n".encode())
        assert Answer(read_all(s)).status == 200
    d.connect = lambda receive_bytes=None: socket.create_connection(("::1", d.port), timeout=10)
    assert d.ask("/health", fields=f"Host: 127.0.0.1:{d.port}\r\n").status == 403


def test_origin_is_checked(driver):
    d = driver()
    same = f"Origin: {WEB}localhost:{d.port}\r\n"
    assert d.ask("/echo", "POST", same, b"x").status == 200
    for origin in (f"{WEB}evil.example", f"{WEB}localhost:{d.port + 1}", f"{WEB}127.0.0.1:{d.port}", "null", "x"):
        a = d.ask("/echo", "POST", f"Origin: {origin}\r\n", b"x")
        assert a.status == 403 and "access-control-allow-origin" not in a.fields
    a = d.ask("/echo", "OPTIONS", same + "Access-Control-Request-Method: POST\r\n")
    assert a.status == 405 and "access-control-allow-methods" not in a.fields
    assert d.stats()["requests"] == 2


def test_cors_when_asked_for(driver):
    page = "https:" "//page.example"
    d = driver("--origin", page, "--key", "secret")
    fields = f"Origin: {page}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a, x-b\r\n"
    a = d.ask("/echo", "OPTIONS", fields)
    assert (a.status, a.body) == (204, b"")
    assert a.fields["access-control-allow-origin"] == page and a.fields["vary"] == "Origin"
    assert a.fields["access-control-allow-headers"] == "x-a, x-b" and "POST" in a.fields["access-control-allow-methods"]
    a = d.ask("/echo", "POST", f"Origin: {page}\r\nX-Api-Key: secret\r\n", b"x")
    assert a.status == 200 and a.fields["access-control-allow-origin"] == page
    a = d.ask("/echo", "POST", f"Origin: {page}\r\n", b"x")
    assert a.status == 401 and a.fields["access-control-allow-origin"] == page  # the page may see why
    assert d.ask("/echo", "OPTIONS", fields.replace("page.", "evil.")).status == 403


def test_keys(driver):
    d = driver("--key", "first-key", "--key", "second-key")

    def status(fields):
        return d.ask("/x", fields=fields).status

    assert status("Authorization: Bearer first-key\r\n") == 200
    assert status("authorization: bearer second-key\r\n") == 200
    assert status("X-Api-Key: second-key\r\n") == 200
    for fields in ("", "Authorization: first-key\r\n", "Authorization: Basic first-key\r\n", "X-Api-Key:\r\n",
                   "Authorization: Bearer first-ke\r\n", "Authorization: Bearer first-key2\r\n",
                   "Authorization: Bearer\r\n", "X-Api-Key: First-key\r\n", f"X-Api-Key: {'k' * 300}\r\n"):
        assert status(fields) == 401, fields
    assert d.ask("/x").fields["www-authenticate"] == "Bearer"
    assert d.ask("/health").status == 200


def test_off_loopback_takes_a_key(build_dir, driver):
    program = build_dir / "tests" / "e2e" / "http_driver"
    if not program.exists():
        pytest.skip("the server is not built")
    done = subprocess.run([program, "--listen", "0.0.0.0"], capture_output=True, timeout=20, check=False)
    assert done.returncode == 1 and b"key" in done.stderr
    d = driver("--listen", "0.0.0.0", "--key", "k")
    assert d.ask("/x").status == 401
    assert d.ask("/x", fields=f"Host: 127.0.0.1:{d.port}\r\nX-Api-Key: k\r\n").status == 200


# ---- limits of size and time ------------------------------------------------------------------------


def test_bodies_over_the_limit(driver):
    d = driver("--body", 100000, "--bodies", 150000)
    assert d.ask("/echo", "POST", body=b"x" * 100000).status == 200
    assert d.ask("/echo", "POST", body=b"x" * 100001).status == 413
    begin = time.monotonic()
    with d.send(f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: 100000000\r\n\r\n") as s:
        raw = b""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(100):
                s.sendall(b"x" * 1000000)
        with contextlib.suppress(ConnectionResetError):
            raw = read_all(s)
    assert Answer(raw).status == 413
    assert time.monotonic() - begin < 10
    assert d.resident() < 60e6


def test_bodies_share_an_account(driver):
    d = driver("--body", 100000, "--bodies", 250000)
    head = f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: 100000\r\n\r\n"
    open_bodies = [d.send(head + "x" * 1000) for _ in range(2)]
    wait_for(lambda: d.stats()["bodies_bytes"] > 200000)
    a = d.ask("/echo", "POST", body=b"y" * 100000)
    assert a.status == 503 and a.fields["retry-after"] == "1"
    assert d.ask("/echo", "POST", body=b"y" * 40000).status == 200  # there is room for less
    assert d.ask("/health").status == 200
    open_bodies[0].close()
    wait_for(lambda: d.stats()["bodies_bytes"] < 150000)
    assert d.ask("/echo", "POST", body=b"y" * 100000).body == b"y" * 100000
    open_bodies[1].sendall(b"x" * 99000)
    assert Answer(read_all(open_bodies[1])).body == b"x" * 100000
    open_bodies[1].close()


def test_slow_heads_and_bodies(driver):
    d = driver("--head-seconds", 1, "--body-seconds", 2)
    with d.connect() as nothing, d.connect() as drops, d.connect() as body:
        body.sendall(f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: 9\r\n\r\nx".encode())
        begin = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\n":  # each byte in time, all of them not
                drops.sendall(bytes([byte]))
                time.sleep(0.05)
                if select.select([drops], [], [], 0)[0]:
                    break
        assert Answer(read_all(drops)).status == 408
        assert 0.9 < time.monotonic() - begin < 2
        assert Answer(read_all(nothing)).status == 408
        assert Answer(read_all(body)).status == 408
        assert 1.9 < time.monotonic() - begin < 4
    wait_for(lambda: d.stats()["connections"] == 1)
    assert d.stats()["bodies_bytes"] == 0


def test_too_many_connections(driver):
    d = driver("--connections", 4)
    held = [d.start("/delay?ms=100000") for _ in range(4)]
    wait_for(lambda: not d_is_free(d))
    a = Answer(d.raw("GET / HTTP/1.1\r\n\r\n"))
    assert a.status == 503 and a.fields["retry-after"] == "1" and a.error()
    flood = [d.connect() for _ in range(60)]  # more than are told so at once: closed
    for s in flood:
        with contextlib.suppress(ConnectionResetError):
            read_all(s)
        s.close()
    held.pop().close()
    wait_for(lambda: d_is_free(d))
    assert d.ask("/health").status == 200
    for s in held:
        s.close()


def d_is_free(d):
    raw = d.raw(f"GET /health HTTP/1.1\r\nHost: localhost:{d.port}\r\n\r\n")
    return bool(raw) and Answer(raw).status == 200


def wait_for(condition, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


# ---- clients that leave, or are slow -----------------------------------------------------------------


@pytest.mark.parametrize("target", ["/delay?ms=60000", "/silent?ms=60000", "/stream?n=100000&ms=20",
                                    "/stream?n=1000000&ms=0&bytes=1000", "/big?bytes=50000000"])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_leavers_are_noticed(driver, target, how):
    """While the worker computes, streams, and waits for a client that reads nothing."""
    d = driver()
    s = d.start(target)
    if target.startswith("/s"):
        read_until(s, b"\r\n\r\n")
    time.sleep(0.3)
    begin = time.monotonic()
    if how == "half":
        s.shutdown(socket.SHUT_WR)
    else:
        if how == "reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    assert d.say("gone", 1) == "gone " + target.split("?")[0]
    assert time.monotonic() - begin < 1
    s.close()
    wait_for(lambda: d.stats()["connections"] == 1)
    assert d.stats()["gone"] == 1


def test_leavers_before_the_handler(driver):
    d = driver()
    before = d.descriptors()
    for text in ("", "GET", f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: 1000\r\n\r\nxx"):
        d.send(text).close()
    wait_for(lambda: d.descriptors() == before, 1)
    assert d.stats()["bodies_bytes"] == 0
    with d.start("/health") as s:  # what is answered at once may be asked for and closed for writing
        s.shutdown(socket.SHUT_WR)
        assert read_all(s).endswith(b"ok")


def test_a_slow_reader_gets_everything_and_holds_nobody_up(driver):
    d = driver()
    with d.start("/stream?n=300&ms=0&bytes=2000", receive_bytes=4096) as slow:
        read_until(slow, b"data: 0")
        begin = time.monotonic()
        assert d.ask("/big?bytes=3000000").body[-1:] == b"%c" % (ord("a") + 2999999 % 23)
        assert time.monotonic() - begin < 5
        data = b""
        while part := slow.recv(3000):
            data += part
            time.sleep(0.002)
    assert b"data: 299 " in data and data.endswith(b"\r\n0\r\n\r\n")


def test_a_reader_that_takes_nothing_is_cut(driver):
    d = driver("--send-seconds", 1)
    with d.start("/stream?n=1000000&ms=0&bytes=1000", receive_bytes=4096) as s, \
            d.start("/static", receive_bytes=4096) as page:
        assert d.say("gone", 4) == "gone /stream"
        wait_for(lambda: d.stats()["connections"] == 1)
        assert not read_all(s).endswith(b"0\r\n\r\n")
        assert len(read_all(page)) < 256 * 1024


# ---- signs of life ----------------------------------------------------------------------------------


def test_keep_alive_comments(driver):
    """Every five seconds of silence, whatever the worker does."""
    d = driver()
    with d.start("/silent?ms=11500") as s:
        begin = time.monotonic()
        head = read_until(s, b"\r\n\r\n")
        assert time.monotonic() - begin < 0.5  # the head does not wait for the first event
        assert b"text/event-stream" in head
        times = []
        while len(times) < 2:
            assert b": keep-alive\n\n" in read_until(s, b"\n\n\r\n")
            times.append(time.monotonic() - begin)
        assert read_all(s) == b"0\r\n\r\n"
    assert [round(t, 1) for t in times] == pytest.approx([5, 10], abs=0.3)


def test_events_are_not_delayed_nor_mixed_with_comments(driver):
    d = driver("--keep-alive", 1, "--out", 4096)
    with d.start("/stream?n=8&ms=100") as s:
        begin = time.monotonic()
        read_until(s, b"data: 0 ")
        assert time.monotonic() - begin < 0.2
        read_until(s, b"data: 7 ")
        assert 0.75 < time.monotonic() - begin < 1.5
    # Events larger than the ring, to a reader that makes them wait: no comment inside.
    with d.start("/stream?n=6&ms=0&bytes=60000", receive_bytes=4096) as s:
        raw = b""
        while part := s.recv(20000):
            raw += part
            if len(raw) < 100000:
                time.sleep(0.3)
    events = Answer(raw).body.split(b"\n\n")
    assert len(events) == 7 and not events[6]
    assert all(len(e) == len("data: 0 ") + 60000 and b": keep" not in e for e in events[:6])


# ---- many -------------------------------------------------------------------------------------------


def stream_for(d, seconds):
    with d.start(f"/stream?n={int(seconds * 50)}&ms=20&bytes=100") as s:
        return Answer(read_all(s))


def test_64_streams(driver):
    d = driver()
    before = d.descriptors()
    with concurrent.futures.ThreadPoolExecutor(70) as pool:
        results = [pool.submit(stream_for, d, 3) for _ in range(64)]
        time.sleep(1)
        more = [pool.submit(d.ask, "/health") for _ in range(6)]
        assert [m.result().status for m in more] == [503] * 6
        answers = [r.result() for r in results]
    assert [a.status for a in answers] == [200] * 64
    for a in answers:
        assert re.findall(rb"data: (\d+) ", a.body) == [b"%d" % i for i in range(150)]
    wait_for(lambda: d.descriptors() == before)
    assert d.resident() < d.stats()["planned_bytes"] + 20e6  # the driver and its workers beside


def test_streams_among_clients_that_behave_badly(driver):
    """Floods, bombs, giants, leavers and sleepers at once: those that stream do not feel it."""
    d = driver("--connections", 48)
    post = f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\n"
    stop = threading.Event()

    def giant():
        with d.send(post + "Content-Length: 100000000\r\n\r\n") as s:
            while not stop.is_set():
                s.sendall(b"x" * 1000000)

    def endless_chunks():
        with d.send(post + "Transfer-Encoding: chunked\r\n\r\n") as s:
            while not stop.is_set():
                s.sendall(b"10000\r\n" + b"[" * 65536 + b"\r\n")

    def flood():
        with d.send(f"GET / HTTP/1.1\r\nHost: localhost:{d.port}\r\n") as s:
            while not stop.is_set():
                s.sendall(b"X: y\r\n" * 1000)

    def half_open():
        with d.send(post + "Content-Length: 1000\r\n\r\nx"):
            stop.wait(0.5)

    def leave():
        d.start("/stream?n=1000&ms=1").close()

    def sleep():
        with d.start("/stream?n=100000&ms=0&bytes=1000", receive_bytes=4096):
            stop.wait(0.5)

    def misbehave(how):
        while not stop.is_set():
            with contextlib.suppress(OSError):
                how()

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        streams = [pool.submit(timed_stream, d, 100) for _ in range(16)]
        time.sleep(0.3)
        before = d.resident()
        bad = [pool.submit(misbehave, how) for how in 2 * [giant, endless_chunks, flood, half_open, leave, sleep]]
        results = [s.result() for s in streams]
        after = d.resident()
        stop.set()
        for b in bad:
            b.result()
    assert max(results) < 1  # the longest pause between two events that are 30 ms apart
    wait_for(lambda: d_is_free(d) and d.stats()["connections"] == 1)
    assert after - before < d.stats()["rest_bytes"]


def timed_stream(d, n):
    """The longest pause between the events of a stream, each of which must arrive."""
    longest, data = 0, b""
    with d.start(f"/stream?n={n}&ms=30") as s:
        last = time.monotonic()
        while part := s.recv(65536):
            now = time.monotonic()
            longest, last, data = max(longest, now - last), now, data + part
    assert re.findall(rb"data: (\d+) ", Answer(data).body) == [b"%d" % i for i in range(n)]
    return longest


def test_no_descriptors_left(driver):
    d = driver()
    resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (30, 30))
    held = [d.connect() for _ in range(40)]  # the kernel takes them, the server cannot
    time.sleep(0.3)
    before = cpu_seconds(d, "sl-http")
    time.sleep(1)
    assert cpu_seconds(d, "sl-http") - before <= 0.05
    for s in held[5:]:
        s.close()
    assert d.ask("/health").status == 200
    for s in held[:5]:
        s.close()


def test_1000_connections_leave_nothing(driver):
    d = driver()
    rng = random.Random(5)
    print("seed 5")
    kinds = [lambda: d.ask("/health"), lambda: d.ask("/echo", "POST", body=b"x" * 50000),
             lambda: d.ask("/big?bytes=50000"), lambda: d.raw("junk\r\n\r\n"), lambda: d.connect().close(),
             lambda: d.start("/stream?n=100&ms=1").close(), lambda: d.ask("/echo", "POST", body=b"x" * 9000000),
             lambda: d.send(f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: 99\r\n\r\nx").close()]

    def round_of(n):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            def one(kind):
                with contextlib.suppress(OSError, AssertionError):
                    kind()
            list(pool.map(one, [rng.choice(kinds) for _ in range(n)]))
        wait_for(lambda: d.stats()["connections"] == 1)

    before = d.descriptors()
    round_of(300)
    resident = d.resident()
    round_of(1000)
    wait_for(lambda: d.descriptors() == before)
    assert d.resident() - resident < 1e6
    assert d.stats()["bodies_bytes"] == 0 and d.stats()["accepted"] > 1300


def test_connections_take_what_is_planned(driver):
    """What 63 connections with large heads, whose clients read nothing, add to the process."""
    d = driver()
    fill = ("X: " + "y" * 220 + "\r\n") * 60

    def streams(target):
        open_ones = [d.start(target, fill, receive_bytes=4096) for _ in range(63)]
        wait_for(lambda: d.stats()["connections"] == 64)
        return open_ones

    for s in streams("/stream?n=3&ms=100"):  # stacks of the workers, and whatever comes with the first use
        with s:
            read_all(s)
    before = d.resident()
    stalled = streams("/stream?n=1000000&ms=0&bytes=1000")
    time.sleep(1)
    assert d.resident() - before <= d.stats()["rest_bytes"]
    for s in stalled:
        s.close()


def test_an_idle_server_sleeps(driver):
    d = driver()
    with d.connect(), d.start("/delay?ms=100000"), d.start("/silent?ms=100000"):
        time.sleep(0.3)
        before = cpu_seconds(d, "sl-http")
        time.sleep(2)
        assert cpu_seconds(d, "sl-http") - before <= 0.02


def cpu_seconds(d, thread):
    for task in pathlib.Path(f"/proc/{d.process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise AssertionError(f"no thread {thread}")


# ---- the end ----------------------------------------------------------------------------------------


def test_stop_lets_streams_finish(driver):
    d = driver("--stop", 5)
    idle, half = d.connect(), d.send(f"POST /echo HTTP/1.1\r\nHost: localhost:{d.port}\r\nContent-Length: 2\r\n\r\nx")
    with idle, half, d.start("/stream?n=20&ms=50") as s:
        read_until(s, b"data: 0 ")
        begin = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        assert Answer(read_all(idle)).status == 503
        with pytest.raises(OSError):
            for _ in range(100):
                d.connect().close()
                time.sleep(0.01)
        half.sendall(b"y")
        assert Answer(read_all(half)).status == 503
        assert b"data: 19 " in read_all(s)
        assert d.say("stopped", 3) is not None
        assert 0.7 < time.monotonic() - begin < 3
    d.text = b"stopped \n"


def test_stop_cuts_what_takes_longer(driver):
    d = driver("--stop", 1)
    with d.start("/silent?ms=60000") as stream, d.start("/delay?ms=60000") as waiting, \
            d.start("/big?bytes=50000000") as big:
        read_until(stream, b"\r\n\r\n")
        time.sleep(0.2)
        begin = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        gone = {d.say("gone", 3) for _ in range(3)}
        assert gone == {"gone /silent", "gone /delay", "gone /big"}
        assert d.say("stopped", 3) is not None
        assert 0.9 < time.monotonic() - begin < 3
        assert read_all(waiting) == b"" and not read_all(stream).endswith(b"0\r\n\r\n")
        assert len(read_all(big)) < 50000000
    d.text = b"stopped \n"
