"""The verb serve and its program against stand-ins for the libraries (tests/unit/fake_server.c): what is said, who
is asked for what, signals, exit codes. The server itself is tested elsewhere."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from terminal import Terminal

LISTENING = "Listening on http://127.0.0.1:49152\n"


@pytest.fixture(scope="session")
def programs(build_dir):
    folder = build_dir / "tests" / "unit"
    assert (folder / "sluice_fake").exists() and (folder / "sluice-serve").exists(), f"{folder} was not built"
    return folder


@pytest.fixture
def home(tmp_path):
    """A SLUICE_HOME with the model 'demo', and one that is not converted."""
    for model, file in (("demo", "manifest.json"), ("raw", "config.json")):
        (tmp_path / "models" / model).mkdir(parents=True)
        (tmp_path / "models" / model / file).write_text("")
    return tmp_path


def add_model(home, name):
    (home / "models" / name).mkdir()
    (home / "models" / name / "manifest.json").write_text("")


@pytest.fixture
def serve(programs, home):
    """Start `sluice serve ARGS`, which is killed at the end if it still runs."""
    started = []

    def start(*args, program=programs / "sluice_fake", **more):
        env = {**os.environ, "SLUICE_HOME": str(home), **more.pop("env", {})}
        kwargs = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        started.append(subprocess.Popen([program, "serve", *map(str, args)], **{**kwargs, **more}))
        return started[-1]

    yield start
    for p in started:
        if p.poll() is None:
            p.kill()
        p.communicate()


def stop(p, *signals):
    """Standard output and error of a server that listens and is then sent signals."""
    line = p.stdout.readline()
    for number in signals or (signal.SIGTERM,):
        p.send_signal(number)
        time.sleep(0.2)
    out, err = p.communicate(timeout=30)
    return line + out, err


def failed(p, code):
    out, err = p.communicate(timeout=30)
    assert (p.returncode, out) == (code, ""), err
    return err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_listens_and_stops(serve, number):
    # Not ignored, as it would be where the tests themselves run under nohup.
    p = serve("demo", "--port", "0", preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    out, err = stop(p, number)
    assert (p.returncode, out) == (0, LISTENING)
    assert "in a budget of 64.0 MiB" in err and "\nSandbox    opens no files" in err
    assert "curl http://127.0.0.1:49152/v1/chat/completions" in err
    assert err.endswith("stopping: what is under way has 10 s; a second signal ends it at once\n")
    assert "\033[1m" not in err and "\r" not in err


def test_a_second_signal_ends_at_once(serve, home):
    add_model(home, "busy")
    p = serve("busy")
    begin = time.monotonic()
    stop(p, signal.SIGINT, signal.SIGINT)
    assert p.returncode == 130 and time.monotonic() - begin < 8


def test_an_ignored_hangup_stays_ignored(serve):
    p = serve("demo", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    p.stdout.readline()
    p.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        p.wait(0.5)


def test_quiet_says_the_address_alone(serve):
    p = serve("demo", "-q", "--port", "0")
    assert stop(p) == (LISTENING, "") and p.returncode == 0


def test_quiet_keeps_errors(serve, home):
    add_model(home, "bad")
    _, err = stop(serve("bad", "--quiet"))
    assert re.fullmatch(r"\d\d:\d\d:\d\d layer 3 expert 4: read 0 bytes\n", err)


def test_json_is_one_line(serve):
    p = serve("demo", "--json", "--mem", "16M", "--port", "9000", "--host", "::1")
    out, _ = stop(p)
    o = json.loads(out)
    assert p.returncode == 0 and out.count("\n") == 1
    assert (o["url"], o["port"], o["model"], o["keys"]) == ("http://[::1]:9000", 9000, "demo", 0)
    assert o["plan"]["budget_bytes"] == 16 << 20 and "trunk" in o["plan"]["accounts"] and "opens no files" in o["sandbox"]
    out, _ = serve("demo", "--json", "--mem", "1M").communicate(timeout=30)
    assert json.loads(out)["error"]["code"] == "budget"


def test_options_reach_the_server(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# people\nfirst\nsecond\n")
    keys.chmod(0o600)
    p = serve("demo", "--host", "0.0.0.0", "--api-key-file", keys, "--allow-host", "llm.lan", "--allow-host",
              "[::1]:80", "--cors", "*", "--cors", "http://localhost:3000", "--snapshots", "0", "--queue", "3",
              "--connections=7", "--no-sandbox", "--name", "it's \"mine\"")
    out, err = stop(p)
    assert out == "Listening on http://0.0.0.0:8080\n"
    log = re.search(r"^\d\d:\d\d:\d\d (host .*)$", err, re.M)[1]
    assert log.startswith("host 0.0.0.0, 2 hosts, 2 origins, 2 keys, last second, snapshots 0, queue 3, connections 7, "
                          "sandbox off")
    assert "others can read" not in err
    # The example can be run as it stands: from here, and with a name that needs quoting twice.
    command = re.search(r"^  (curl http://127.0.0.1:8080/.*?)\n(?!  )", err, re.M | re.S)[1]
    shown = subprocess.run(["sh", "-c", "curl() { printf '%s\\n' \"$@\"; }; KEY=k; " + command],
                           capture_output=True, text=True, check=True).stdout.split("\n")
    assert "Authorization: Bearer k" in shown
    assert json.loads(shown[shown.index("--json") + 1])["model"] == "it's \"mine\""


def test_defaults_reach_the_server(serve):
    _, err = stop(serve("demo"))
    assert "host none, 0 hosts, 0 origins, 0 keys, last none, snapshots -1, queue 0, connections 0, sandbox on" in err


@pytest.mark.parametrize("args, says", [
    (["a", "b"], "unexpected argument 'b': write 'sluice serve [MODEL]'"),
    (["--port", "65536"], "--port: '65536' is not a whole number from 0 to 65535"),
    (["--host", "example.org"], "--host: 'example.org' is not an address"),
    (["--host", "0.0.0.0"], "--host: other machines reach 0.0.0.0: add --api-key-file"),
    (["--host", "::"], "--host: other machines reach ::: add --api-key-file"),
    (["--cors", "https://example.org/"], "--cors: 'https://example.org/' is not an origin"),
    (["--cors", "example.org"], "is not an origin"),
    (["--allow-host", "http://example.org"], "--allow-host: 'http://example.org' is not a name"),
    (["--allow-host", "x:0"], "is not a name"),
    (["--name", ""], "--name: a text of 1 to 128 bytes"),
    (["--snapshots", "1"], "--snapshots: '1' has no unit"),
    (["--mem", "0"], "--mem: '0' has no unit"),
    (["--temp", "1"], "'serve' has no option '--temp' ('run' has)"),
])
def test_usage_errors_need_no_server(programs, home, tmp_path, args, says):
    alone = shutil.copy(programs / "sluice_fake", tmp_path / "sluice")
    r = subprocess.run([alone, "serve", *args], capture_output=True, text=True, timeout=30,
                       env={**os.environ, "SLUICE_HOME": str(home)})
    assert (r.returncode, r.stdout) == (2, "") and r.stderr.startswith("sluice: ") and says in r.stderr


def test_a_server_that_is_not_installed(programs, serve, tmp_path):
    alone = shutil.copy(programs / "sluice_fake", tmp_path / "sluice")
    err = failed(serve("demo", program=alone), 1)
    assert f"looked for {tmp_path}/sluice-serve" in err and "libmicrohttpd" in err
    (tmp_path / "sluice-serve").write_text("")  # there, but nothing to run
    assert f"starting '{tmp_path}/sluice-serve': Permission denied" in failed(serve("demo", program=alone), 1)


def test_the_installed_place(programs, serve, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "libexec" / "sluice").mkdir(parents=True)
    program = shutil.copy(programs / "sluice_fake", tmp_path / "bin" / "sluice")
    shutil.copy(programs / "sluice-serve", tmp_path / "libexec" / "sluice" / "sluice-serve")
    (tmp_path / "link").symlink_to(program)
    p = serve("demo", program=tmp_path / "link")
    assert stop(p)[0] == "Listening on http://127.0.0.1:8080\n" and p.returncode == 0


def test_the_program_alone(programs, home):
    def run(*args):
        return subprocess.run([programs / "sluice-serve", *args], capture_output=True, text=True, timeout=30,
                              env={**os.environ, "SLUICE_HOME": str(home)})
    r = run("run", "demo", "hello")
    assert r.returncode == 2 and "write 'sluice run'" in r.stderr
    assert run("serve", "--port", "x").returncode == 2


def test_the_only_model_is_chosen(serve, home):
    out, _ = stop(serve("--json"))
    assert json.loads(out)["model"] == "demo"  # 'raw' is not converted
    add_model(home, "other")
    err = failed(serve(), 2)
    assert "MODEL is missing, and the models folder has 2: demo, other\n" in err
    for name in ("demo", "other"):
        shutil.rmtree(home / "models" / name)
    assert f"there is no model in {home}/models" in failed(serve(), 4)
    shutil.rmtree(home / "models")
    assert f"there is no model in {home}/models" in failed(serve(), 4)


def test_models_that_cannot_be_served(serve, home):
    assert "has to be converted first: 'sluice convert " in failed(serve("raw"), 4)
    assert "there is no model 'nope'" in failed(serve("nope"), 4)
    assert "holds no weights: 'sluice plan' takes it, serve does not" in failed(
        serve(home / "models" / "raw" / "config.json"), 4)
    add_model(home, "mute")
    assert "has no tokenizer" in failed(serve("mute"), 4)
    err = failed(serve("demo", "--mem", "1M"), 3)
    assert "The smallest budget that works here: --mem 8M" in err
    assert "listening on port 1: Permission denied" in failed(serve("demo", "--port", "1"), 1)


def test_names(serve, home):
    for path, name in ((home / "models" / "demo", "demo"), (f"{home}/models/demo//", "demo"), (".", "model")):
        out, _ = stop(serve(path, "--json", cwd=home / "models" / "demo"))
        assert json.loads(out)["model"] == name


def test_files_of_keys(serve, tmp_path):
    keys = tmp_path / "keys"
    assert "--api-key-file: reading '" in failed(serve("demo", "--api-key-file", keys), 1)
    keys.write_text("# none\n")
    assert "there is no key in it" in failed(serve("demo", "--api-key-file", keys), 1)
    keys.write_text("good\nnot secret\n")
    err = failed(serve("demo", "--api-key-file", keys), 1)
    assert "line 2 is not a key" in err and "secret" not in err
    keys.write_text("k" * 70000)
    assert "is longer than 65536 bytes" in failed(serve("demo", "--api-key-file", keys), 1)
    keys.write_text("key\n")
    keys.chmod(0o644)
    _, err = stop(serve("demo", "--api-key-file", keys))
    assert f"others can read the keys in '{keys}'" in err and "1 keys, last key" in err
    _, err = stop(serve("demo", "--api-key-file", "-", stdin=os.open(keys, os.O_RDONLY)))
    assert "1 keys, last key" in err and "others can read" not in err


def test_a_reader_that_leaves_is_no_reason_to_stop(serve):
    p = serve("demo", "--port", "0", stdout=subprocess.PIPE, text=False)
    p.stdout.close()
    for line in p.stderr:
        if line.startswith(b"    --json") or line.startswith(b"  curl"):
            break
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 0


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(serve, tmp_path, abstract):
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.settimeout(30)
    path = f"@{tmp_path.name}-{os.getpid()}" if abstract else str(tmp_path / "notify")
    manager.bind("\0" + path[1:] if abstract else path)
    p = serve("demo", env={"NOTIFY_SOCKET": path})
    assert p.stdout.readline().startswith("Listening") and manager.recv(100) == b"READY=1"
    p.send_signal(signal.SIGTERM)
    assert manager.recv(100) == b"STOPPING=1" and p.wait(30) == 0
    manager.close()


def test_on_a_terminal(programs, home):
    with Terminal([programs / "sluice_fake", "serve", "demo", "--port", "0"],
                  {"SLUICE_HOME": str(home), "NO_COLOR": ""}) as t:
        t.wait("curl .*Hello")
        assert "Listening on \033[1mhttp://127.0.0.1:49152\033[0m\n" in t.text
        assert "\033[31m" not in t.text  # of a line of the log: nothing drives the terminal but us
        t.type("\003")
        assert t.finish() == 0 and "stopping: " in t.text
