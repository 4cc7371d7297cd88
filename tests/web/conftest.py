"""A server with the demo model, a browser, and a page on it."""
import json
import shutil
import subprocess
import urllib.request

import pytest

from proxy import Proxy

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SIZES = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}


class Server:
    """`sluice serve` on the demo model, at .port; .get() asks it for JSON."""

    def __init__(self, sluice, store, *args):
        self.process = subprocess.Popen(
            [sluice, "serve", store, "--mem", "30M", "--ctx", "1024", "--port", "0", "--name", "demo",
             "--allow-host", "127.0.0.1", "--quiet", *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("Listening on http://127.0.0.1:"):
            self.process.kill()
            raise RuntimeError(f"the server says {line!r}, {self.process.stderr.read()}")
        self.port = int(line.rsplit(":", 1)[1].strip("/\n"))

    def get(self, path, **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="session")
def server_program(sluice, build_dir):
    if not (build_dir / "sluice-serve").exists():
        pytest.skip("the server was not built: libmicrohttpd is missing")
    return sluice


@pytest.fixture(scope="session")
def start_server(server_program, demo_store):
    started = []

    def start(*args):
        started.append(Server(server_program, demo_store, *args))
        return started[-1]

    yield start
    for s in started:
        s.stop()


@pytest.fixture(scope="session")
def server(start_server):
    return start_server()


@pytest.fixture
def proxy(server):
    p = Proxy(server.port)
    yield p
    p.close()


@pytest.fixture(scope="session")
def browser():
    if not CHROMIUM:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield b
        b.close()


@pytest.fixture(scope="session")
def pictures(build_dir):
    folder = build_dir / "web-pictures"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def new_page(browser):
    """new_page(port, size, scheme): a page in a browser that has never been here. What the page writes to the console
    as an error, and every exception, fails the test, unless the test empties page.faults."""
    contexts, pages = [], []

    def make(port, size="desktop", scheme="light", **more):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme,
                                      device_scale_factor=2 if size == "phone" else 1, has_touch=size == "phone",
                                      accept_downloads=True, **more)
        context.set_default_timeout(15000)
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda e: page.faults.append(str(e)))
        page.on("console", lambda m: page.faults.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda d: (page.faults.append(f"dialog: {d.message}"), d.dismiss()))
        pages.append(page)
        page.goto(f"http://127.0.0.1:{port}/")
        return page

    yield make
    faults = [f for page in pages for f in page.faults]
    for context in contexts:
        context.close()
    assert not faults, faults


