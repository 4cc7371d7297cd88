"""The command line against a stand-in for the library (tests/unit/fake_sluice.c): what a person types, pipes
and interrupts, with an engine that fails, thinks and fills its context on demand."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from terminal import Terminal

PROMPT = ">>> $"


@pytest.fixture(scope="session")
def program(build_dir):
    path = build_dir / "tests" / "unit" / "sluice_fake"
    assert path.exists(), f"{path} was not built"
    return path


@pytest.fixture
def home(tmp_path):
    """A SLUICE_HOME with the model 'demo'."""
    model = tmp_path / "models" / "demo"
    model.mkdir(parents=True)
    (model / "manifest.json").write_text("")
    return tmp_path


@pytest.fixture
def cli(program, home):
    def run(*args, stdin="", **more):
        kwargs = dict(capture_output=True, text=True, timeout=30, env={**os.environ, "SLUICE_HOME": str(home)})
        kwargs.update({"input": stdin} if isinstance(stdin, (str, bytes)) else {"stdin": stdin})
        kwargs.update(more)
        return subprocess.run([program, *map(str, args)], **kwargs)

    return run


@pytest.fixture
def terminal(program, home):
    def start(*args, stdout=None, **env):
        return Terminal([program, *args], {"SLUICE_HOME": str(home), "NO_COLOR": "", **env}, stdout)

    return start


def start(program, home, *args, **more):
    return subprocess.Popen([program, *args], env={**os.environ, "SLUICE_HOME": str(home)}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


# ---- one answer -----------------------------------------------------------------------------------


def test_answer_alone_on_stdout(cli):
    r = cli("run", "demo", "hello", stdin=subprocess.DEVNULL)
    assert (r.returncode, r.stdout) == (0, "You said: hello\n")
    assert "budget 64.0 MiB" in r.stderr and re.search(r"temp 0.7, top-k 20, top-p 0.95, seed \d+\n", r.stderr)


def test_quiet_says_nothing_else(cli):
    r = cli("run", "demo", "hello", "--quiet")
    assert (r.returncode, r.stdout, r.stderr) == (0, "You said: hello\n", "")
    r = cli("run", "demo", "think", "--think", "on", "-q")
    assert (r.stdout, r.stderr) == ("thought\n", "")


@pytest.mark.parametrize("args, stdin, prompt", [
    (["hello"], "", "hello"),
    ([], "from a pipe\n", "from a pipe"),
    (["first"], "second\n\n", r"first\n\nsecond\n"),
    (["first"], "second\r\n", r"first\n\nsecond"),
    (["-f", "-"], "dash", "dash"),
    (["--", "--json"], "", "--json"),
])
def test_where_the_prompt_comes_from(cli, args, stdin, prompt):
    r = cli("run", "demo", "-q", *args, stdin=stdin)
    assert (r.returncode, r.stdout) == (0, f"You said: {prompt}\n"), r.stderr


def test_prompt_file_and_pipe(cli, home):
    (home / "prompt.txt").write_text("from a file\n")
    assert cli("run", "demo", "-q", "-f", home / "prompt.txt", stdin="and a pipe").stdout == \
        "You said: from a file\\n\\nand a pipe\n"
    r = cli("run", "demo", "-f", home / "none.txt")
    assert r.returncode == 1 and "none.txt" in r.stderr and "No such file" in r.stderr


@pytest.mark.parametrize("args, stdin", [([], ""), ([""], ""), (["-f", "-"], "")])
def test_empty_prompt_is_a_usage_error(cli, args, stdin):
    r = cli("run", "demo", *args, stdin=stdin)
    assert r.returncode == 2 and "the prompt is empty" in r.stderr
    r = cli("run", "demo", *args, stdin=subprocess.DEVNULL)
    assert r.returncode == 2


@pytest.mark.parametrize("args, says", [
    (["a", "-f", "x"], "two prompts"),
    (["a", "--chat", "x"], "leave out PROMPT"),
    (["--chat", "x", "--system", "s"], "system message"),
    (["a", "--raw", "--think", "on"], "--think"),
    (["a", "--raw", "--system", "s"], "--system"),
])
def test_options_that_contradict_each_other(cli, args, says):
    r = cli("run", "demo", *args)
    assert r.returncode == 2 and says in r.stderr and r.stdout == ""


def test_invalid_utf8_is_replaced_and_said(cli):
    r = cli("run", "demo", stdin=b"a\xffb", text=False)
    assert r.stdout == "You said: a\ufffdb\n".encode() and b"1 bytes that are not UTF-8" in r.stderr


def test_raw_takes_the_prompt_as_it_is(cli):
    assert cli("run", "demo", "-q", "--raw", "a <b>", stdin="").stdout == "You said: a <b>\n"
    assert cli("run", "demo", "-q", "--raw", stdin="line\n").stdout == "You said: line\n"  # ends in its newline


def test_system_and_think_reach_the_template(cli):
    r = cli("run", "demo", "-q", "request", "--system", 'be "brief"')
    assert json.loads(r.stdout) == {"add_generation_prompt": True, "enable_thinking": False, "messages": [
        {"role": "system", "content": 'be "brief"'}, {"role": "user", "content": "request"}]}
    assert json.loads(cli("run", "demo", "-q", "request", "--think", "on").stdout.split("\n")[0])["enable_thinking"]


def test_chat_file(cli, home):
    file = home / "chat.json"
    messages = [{"role": "user", "content": "request"}]
    file.write_text(json.dumps({"messages": messages, "custom": 1}))
    assert json.loads(cli("run", "demo", "-q", "--chat", file).stdout) == {
        "messages": messages, "custom": 1, "add_generation_prompt": True, "enable_thinking": False}
    file.write_text(json.dumps({"messages": messages, "enable_thinking": True}) + "\n")
    assert json.loads(cli("run", "demo", "-q", "--chat", file).stdout.split("\n")[0])["enable_thinking"] is True
    r = cli("run", "demo", "-q", "--chat", file, "--think", "off")
    assert r.returncode == 2 and "enable_thinking" in r.stderr
    tools = [{"type": "function", "function": {"name": "f"}}]
    file.write_text(json.dumps({"tools": tools, "messages": [{"role": "user", "content": "tools"}]}))
    assert json.loads(cli("run", "demo", "-q", "--chat", file).stdout) == tools
    file.write_text("[1]")
    assert cli("run", "demo", "-q", "--chat", file).returncode == 2
    assert cli("run", "demo", "-q", "--chat", "-", stdin=json.dumps({"messages": messages})).returncode == 0


def test_thinking_and_tool_calls_go_to_stderr(cli):
    r = cli("run", "demo", "think", "--think", "on")
    assert r.stdout == "thought\n" and "thinking: hm\n" in r.stderr
    r = cli("run", "demo", "tool")
    assert r.stdout == "calling\n" and 'tool call: {"name": "f", "arguments": {}}\n' in r.stderr


def test_json_is_one_object_on_one_line(cli):
    r = cli("run", "demo", "think", "--think", "on", "--json", "--seed", "18446744073709551615")
    assert r.returncode == 0 and r.stdout.count("\n") == 1
    o = json.loads(r.stdout)
    assert (o["text"], o["reasoning"], o["tool_calls"], o["finish"]) == ("thought", "hm", [], "stop")
    assert o["tokens"] == list(b"hmthought") and o["prompt_tokens"] > 0 and o["seed"] == 2**64 - 1
    assert set(o) == {"text", "reasoning", "tool_calls", "tokens", "prompt_tokens", "finish", "seconds", "hits", "reads",
                      "guess_reads", "guesses_used",
                      "read_bytes", "drive_bytes", "drive_seconds", "drive_open_bytes",
                      "drive_open_seconds", "mem_bytes", "peak_bytes", "seed"}
    assert set(o["seconds"]) == {"open", "prefill", "decode"}
    o = json.loads(cli("run", "demo", "tool", "--json").stdout)
    assert o["tool_calls"] == [{"name": "f", "arguments": {}}] and o["finish"] == "tool_calls"
    o = json.loads(cli("run", "demo", "hello", "--json", "--max-tokens", "3").stdout)
    assert (o["text"], o["finish"], len(o["tokens"])) == ("You", "length", 3)


@pytest.mark.parametrize("args, code, word", [
    (["run", "demo", "x", "--json", "--mem", "4"], 2, "usage"),
    (["run", "demo", "x", "--json", "--mem", "4M"], 3, "budget"),
    (["run", "none", "x", "--json"], 4, "missing"),
    (["run", "demo", "fail", "--json"], 1, "io"),
    (["run", "demo", "x", "--json", "--ctx", "10"], 1, "context"),
    (["rub", "--json"], 2, "usage"),
    (["show", "none", "--json"], 4, "missing"),
])
def test_json_errors(cli, args, code, word):
    r = cli(*args)
    assert r.returncode == code and r.stdout.count("\n") == 1
    error = json.loads(r.stdout)["error"]
    assert error["code"] == word and error["message"]


def test_context(cli):
    r = cli("run", "demo", "x" * 500, "--ctx", "300")
    assert r.returncode == 1 and r.stdout == "" and re.search(r"the prompt has \d+ tokens, the context holds 300", r.stderr)
    needed = re.search(r"--ctx (\d+) or more", r.stderr)[1]
    assert cli("run", "demo", "x" * 500, "--ctx", needed, "--max-tokens", "1").returncode == 0
    r = cli("run", "demo", "x" * 5000, "--ctx", "300")  # longer than the buffers that the plan holds
    assert r.returncode == 1 and "nothing was cut" in r.stderr
    r = cli("run", "demo", stdin="x" * 5000, timeout=10)
    assert r.returncode == 1 and "the prompt has 51" in r.stderr  # more than 4096 tokens
    r = cli("run", "demo", "fill", "--ctx", "300")
    assert r.returncode == 0 and re.search(r"the context is full \(\d+ tokens of prompt and \d+ of answer in 300\)", r.stderr)
    assert cli("run", "demo", "x", "--ctx", "9000").returncode == 2


def test_budget_refusal_names_the_smallest(cli):
    r = cli("run", "demo", "x", "--mem", "7.5M")
    assert r.returncode == 3 and "--mem 8M" in r.stderr and "account 'trunk'" in r.stderr and r.stdout == ""
    assert cli("run", "demo", "x", "--mem", "8M").returncode == 0


def test_stats(cli):
    r = cli("run", "demo", "hello", "--stats", "--quiet")
    for line in (r"prefill  \d+ tokens in 0.25 s: [\d.]+ tok/s", r"decode   15 tokens in 0.50 s: 30.0 tok/s",
                 r"experts  83.3% found in memory: 600 hits, 120 reads", r"read     162.0 KiB for each token; [\d.]+ MiB in all, 1.7 MiB of it to open",
                 r"drive    128.0 MiB/s while reading, 2.0 GiB/s at open",
                 r"memory   peak 63.0 MiB of 64.0 MiB \(98.4%\)"):
        assert re.search(f"^{line}", r.stderr, re.M), r.stderr


def test_failure_in_the_middle(cli):
    r = cli("run", "demo", "fail")
    assert r.returncode == 1 and r.stdout == "half\n"
    assert "sluice: layer 3 expert 5: reading 'experts/003.bin' at 4096" in r.stderr


# ---- signals and pipes ----------------------------------------------------------------------------


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_an_answer(program, home, number, code):
    with start(program, home, "run", "demo", "long") as p:
        assert p.stdout.read(5) == b"word "
        p.send_signal(number)
        out, _ = p.communicate(timeout=10)
        assert p.returncode == code and out.endswith(b"\n")
    with start(program, home, "run", "demo", "long", "--json") as p:
        time.sleep(0.5)
        p.send_signal(number)
        out, _ = p.communicate(timeout=10)
        assert p.returncode == code and json.loads(out)["finish"] == "cancel"


def test_signal_while_the_prompt_is_read(program, home):
    with subprocess.Popen([program, "run", "demo", "x"], env={**os.environ, "SLUICE_HOME": str(home)},
                          stdin=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        assert p.wait(10) == 130


def test_ignored_signals_stay_ignored(program, home):
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    with start(program, home, "run", "demo", "long", "--max-tokens", "100", preexec_fn=ignore) as p:
        begin = os.read(p.stdout.fileno(), 5)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=10)
        assert p.returncode == 0 and len(begin + out) == 101


@pytest.mark.parametrize("args", [["run", "demo", "long"], ["run", "demo", "hello"], ["help", "--man"],
                                  ["plan", "demo"], ["tokenize", "demo", "/etc/passwd"]])
def test_a_reader_that_left_ends_quietly(program, home, args):
    read, write = os.pipe()
    os.close(read)
    r = subprocess.run([program, *args], stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=10,
                       env={**os.environ, "SLUICE_HOME": str(home)})
    os.close(write)
    assert r.returncode == 0 and b"sluice:" not in r.stderr and b"ipe" not in r.stderr


@pytest.mark.parametrize("args", [["run", "demo", "long"], ["help"], ["version", "--json"]])
def test_a_full_drive_is_an_error(program, home, args):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([program, *args], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=10,
                           env={**os.environ, "SLUICE_HOME": str(home)}, text=True)
    assert r.returncode == 1 and r.stderr.count("writing to standard output: No space left") == 1


def test_a_file_gets_bytes_and_a_terminal_does_not_get_controls(cli, terminal):
    assert cli("run", "demo", "control").stdout == "a\033[31mb\n"
    with terminal("run", "demo", "control") as t:
        assert t.finish() == 0
        assert "a\ufffd[31mb\n" in t.text


# ---- other verbs ----------------------------------------------------------------------------------


def test_plan(cli):
    r = cli("plan", "demo", "--mem", "14M", "--ctx", "2048")
    assert r.returncode == 0 and max(map(len, r.stdout.split("\n"))) <= 80 and "\033" not in r.stdout
    assert re.search(r"^  trunk +1.7 MiB +1,798,704  weights", r.stdout, re.M) and "--mem 8M" in r.stdout
    o = json.loads(cli("plan", "demo", "--mem", "14M", "--json").stdout)
    assert o["fits"] and o["budget_bytes"] == 14 << 20 and o["accounts"]["trunk"] == 1798704
    r = cli("plan", "demo", "--mem", "4M")
    assert r.returncode == 3 and "Does not fit" in r.stdout and "--mem 8M" in r.stdout
    r = cli("plan", "demo", "--mem", "4M", "--json")
    o = json.loads(r.stdout)
    assert r.returncode == 3 and not o["fits"] and o["smallest_bytes"] == 8 << 20 and o["error"]["code"] == "budget"
    assert cli("plan", "none").returncode == 4


def test_config_json_as_model(cli, home):
    (home / "config.json").write_text("{}")
    assert cli("plan", "config.json", cwd=home).returncode == 0
    r = cli("run", "config.json", "x", cwd=home)
    assert r.returncode == 4 and "no weights" in r.stderr


def test_convert(cli, home, program):
    checkpoint = home / "my model"
    checkpoint.mkdir()
    assert cli("convert", checkpoint).returncode == 4
    (checkpoint / "config.json").write_text("{}")
    r = cli("convert", str(checkpoint) + "/")
    assert r.returncode == 0 and "Next: sluice run 'my model'" in r.stdout and "left out: vision" in r.stdout
    assert (home / "models" / "my model" / "manifest.json").exists()
    r = cli("convert", checkpoint)
    assert r.returncode == 1 and "--force" in r.stderr
    r = cli("convert", checkpoint, env={**os.environ, "SLUICE_HOME": str(home / "a" / "b")})
    assert r.returncode == 0 and (home / "a" / "b" / "models" / "my model").exists()  # folders are made
    o = json.loads(cli("convert", checkpoint, "other", "--force", "--json").stdout)
    assert o["path"] == str(home / "models" / "other") and o["notes"] == ["left out: vision tower (2 tensors)"]
    assert cli("convert", home / "models" / "demo").returncode == 2  # is one already
    assert cli("convert", checkpoint, "--bits", "7").returncode == 2
    (checkpoint / "slow").write_text("")
    with start(program, home, "convert", checkpoint, home / "slow") as p:
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=10)
        assert p.returncode == 130 and b"the same command goes on" in err


def test_run_on_a_checkpoint(cli, home, terminal):
    checkpoint = home / "new"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    r = cli("run", checkpoint, "x")
    assert r.returncode == 4 and f"\n  sluice convert {checkpoint}\n  sluice run new\n" in r.stderr and r.stdout == ""
    with terminal("run", str(checkpoint), "hello") as t:
        t.wait(r"\[y/N\] ")
        t.type("n\r")
        assert t.finish() == 4
    with terminal("run", str(checkpoint), "hello") as t:
        t.wait(r"\[y/N\] ")
        t.type("\x03")
        assert t.finish() == 130
    with terminal("run", str(checkpoint), "hello") as t:
        t.wait(r"\[y/N\] ")
        t.type("y\r")
        assert t.finish() == 0 and "You said: hello\n" in t.text
    assert (home / "models" / "new").exists()


def test_models_that_cannot_run(cli, home):
    (home / "x.gguf").write_text("")
    assert cli("run", home / "x.gguf", "x").returncode == 4
    (home / "models" / "half.partial").mkdir()
    r = cli("run", "half", "x")
    assert r.returncode == 4 and "not finished" in r.stderr
    r = cli("run", "none", "x")
    assert r.returncode == 4 and str(home / "models" / "none") in r.stderr and "The models folder has: demo" in r.stderr
    (home / "models" / "demo" / "damaged").write_text("")
    assert cli("run", "demo", "x").returncode == 4


def test_ls_and_rm(cli, home, terminal):
    (home / "models" / "half.partial").mkdir()
    r = cli("ls")
    assert re.search(r"^demo +0 B  model$", r.stdout, re.M) and re.search(r"^half.partial .*unfinished$", r.stdout, re.M)
    assert cli("ls", "--names").stdout == "demo\n"
    o = json.loads(cli("ls", "--json").stdout)
    assert [m["kind"] for m in o["models"]] == ["model", "unfinished"]
    r = cli("rm", "demo")
    assert r.returncode == 2 and "--yes" in r.stderr
    with terminal("rm", "demo") as t:
        t.wait(r"\[y/N\] ")
        t.type("\r")
        assert t.finish() == 1
    assert (home / "models" / "demo").exists()
    with terminal("rm", "demo") as t:
        t.wait(r"\[y/N\] ")
        t.type("y\r")
        assert t.finish() == 0
    assert cli("rm", "half", "--yes").returncode == 0
    assert cli("rm", "half", "--yes").returncode == 4
    assert cli("ls").stdout == "" and list((home / "models").iterdir()) == []
    assert cli("ls", env={**os.environ, "SLUICE_HOME": str(home / "none")}).returncode == 0


def test_verify(cli, home):
    r = cli("verify", "demo")
    assert r.returncode == 0 and "every checksum is right" in r.stdout
    (home / "models" / "demo" / "damaged").write_text("")
    r = cli("verify", "demo")
    assert r.returncode == 4 and "experts/003.bin: record 5" in r.stdout and "2 records" in r.stderr
    r = cli("verify", "demo", "--json")
    o = json.loads(r.stdout)
    assert r.returncode == 4 and o["lines"] == ['experts/003.bin: record 5 is "damaged"', "experts/004.bin: record 6"]
    assert o["damaged"] == 2 and not o["ok"] and o["error"]["code"] == "corrupt"


def test_logits_files_appear_whole_or_not(cli, home):
    (home / "ids").write_text("1 2\n3\n")
    out, hidden = home / "out.f32", home / "hidden.f32"
    r = cli("logits", "demo", "--tokens", home / "ids", "--out", out, "--hidden", hidden)
    assert r.returncode == 0 and out.stat().st_size == 3072 and hidden.stat().st_size == 416
    out.unlink()
    hidden.unlink()
    for text, code, says in (("1 999", 2, "vocabulary"), ("1 x", 1, "'x' at byte 2"), ("", 1, "holds no ids")):
        (home / "ids").write_text(text)
        r = cli("logits", "demo", "--tokens", home / "ids", "--out", out, "--hidden", hidden)
        assert r.returncode == code and says in r.stderr
        assert not [f for f in home.iterdir() if "f32" in f.name]
    (home / "ids").write_text("1")
    r = cli("logits", "demo", "--tokens", home / "ids", "--out", home / "none" / "out")
    assert r.returncode == 1 and "No such file" in r.stderr
    assert cli("logits", "demo", "--out", out).returncode == 2
    assert cli("logits", "demo", "--tokens", home / "ids", "--out", out, "--mem", "4M").returncode == 3
    assert not [f for f in home.iterdir() if "f32" in f.name]


def test_text_tools(cli, home):
    assert cli("tokenize", "demo", stdin="ab\n").stdout == "97 98 10\n"
    assert cli("tokenize", "demo", "-", "--plain", stdin="a").stdout == "1097\n"
    assert cli("tokenize", "demo", "--decode", stdin="97 98\n").stdout == "ab"
    assert cli("tokenize", "demo", "--decode", stdin="97 x").returncode == 1
    assert cli("tokenize", "none", stdin="a").returncode == 4
    (home / "chat.json").write_text('{"messages": []}')
    assert cli("template", "demo", home / "chat.json").stdout == '{"messages": []}'
    assert cli("template", "demo", "-", stdin="{}").stdout == "{}"
    assert cli("template", "none", home / "chat.json").returncode == 4
    assert cli("template", "demo", home / "none.json").returncode == 1


def test_help(cli):
    r = cli()
    assert r.returncode == 2 and r.stdout == "" and "sluice help VERB" in r.stderr
    assert cli("help").stdout == cli("--help").stdout != ""
    assert cli("help", "run").stdout == cli("run", "--help").stdout == cli("run", "-h").stdout
    r = cli("help", "rnu")
    assert r.returncode == 2 and "did you mean 'run'" in r.stderr
    assert cli("version").stdout == cli("--version").stdout
    assert json.loads(cli("version", "--json").stdout)["licence"] == "Apache-2.0"


def test_bash_completion(cli, home, program):
    (home / "sluice").symlink_to(program)
    script = home / "completion.bash"
    script.write_text(cli("help", "--bash").stdout)

    def complete(*words):
        line = " ".join(f"'{w}'" for w in words)
        # compopt works only while bash completes.
        return subprocess.run(["bash", "-c", f"compopt() {{ :; }}; . {script}; COMP_WORDS=({line}); "
                               f"COMP_CWORD={len(words) - 1}; _sluice; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
                              capture_output=True, text=True, cwd=home / "models", timeout=10, check=True,
                              env={**os.environ, "SLUICE_HOME": str(home), "PATH": f"{home}:{os.environ['PATH']}"}
                              ).stdout.split()

    assert complete("sluice", "t") == ["trace", "tokenize", "template"]
    assert complete("sluice", "run", "demo", "--te") == ["--temp"]
    assert complete("sluice", "run", "demo", "--think", "") == ["on", "off"]
    assert complete("sluice", "run", "de")[0] == "demo"
    assert complete("sluice", "help", "ve") == ["verify", "version"]
    assert complete("sluice", "run", "demo", "--mem", "") == []


# ---- terminal and chat ----------------------------------------------------------------------------


def test_colour(terminal):
    with terminal("plan", "demo") as t:
        t.finish()
        assert "\033[1m" in t.text
    for args, env in ((["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})):
        with terminal("plan", "demo", *args, **env) as t:
            t.finish()
            assert "\033" not in t.text


def test_progress_is_cleared(terminal, home):
    checkpoint = home / "ck"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "slow").write_text("")
    with terminal("convert", str(checkpoint)) as t:
        t.wait(r"\rconverting \d+\.\d MiB of 1000.0 MiB +\d+%  [\d.]+ MiB/s  0:0\d left")
        t.type("\x03")
        assert t.finish() == 130
        assert re.search(r"\r +\r(\033\[2m)?stopped; nothing is lost", t.text)


def test_progress_fits_a_narrow_window(terminal, home):
    checkpoint = home / "ck"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "slow").write_text("")
    with terminal("convert", str(checkpoint)) as t:
        t.resize(24, 30)
        end = t.wait(r"(\rconverting [^\r]*){3}\r")
        lines = [line for line in t.text[:end].split("\r") if line.startswith("converting")]
        assert {len(line) for line in lines[1:]} == {29}  # the first may have been before
        t.type("\x03")
        assert t.finish() == 130


def test_chat(terminal, home):
    with terminal("run", "demo") as t:
        t.wait(PROMPT)
        t.line("hello wörld", "You said: hello wörld\n\n" + PROMPT)
        t.line('"""first', r"\.\.\. $")
        t.line("", r"\.\.\. $")
        t.line('last"""', r"You said: first\\n\\nlast\n\n" + PROMPT)
        t.line("one\\", r"\.\.\. $")
        t.line("two", r"You said: one\\ntwo\n\n" + PROMPT)
        t.line("/nope", "there is no command '/nope'.*" + PROMPT)
        t.line('"""/nope"""', "You said: /nope\n\n" + PROMPT)
        t.line("/help", "/system TEXT.*" + PROMPT)
        t.line("", PROMPT)
        t.type("half a line")
        t.wait("half a line")  # the terminal drops what it has not handed on when Ctrl-C comes
        t.type("\x03")
        t.wait(r"half a line.*\n.*>>> $")
        t.type("\x1b[A\r")  # the line before in the history
        t.wait(r"/system TEXT.*/system TEXT.*" + PROMPT)
        t.line("/bye", "")
        assert t.finish() == 0
    assert (home / "history").stat().st_mode & 0o777 == 0o600
    with terminal("run", "demo") as t:  # the history outlives the chat
        t.wait(PROMPT)
        t.type("\x1b[A\x1b[A\r")
        t.wait("/system TEXT.*" + PROMPT)
        assert t.leave() == 0


def conversation(t):
    """What the template gets for the message 'request'."""
    begin = len(t.text)
    t.line("request", PROMPT)
    answer = re.search(r"\{\"add.*\]\}", t.text[begin:].replace("\n", ""))[0]
    return [(m["role"], m["content"]) for m in json.loads(answer)["messages"]]


def test_chat_keeps_the_conversation(terminal):
    with terminal("run", "demo", "--system", "s", "-q") as t:
        t.wait(PROMPT)
        t.line('a "quote"', PROMPT)
        first = [("system", "s"), ("user", 'a "quote"'), ("assistant", 'You said: a \\"quote\\"')]
        assert conversation(t) == [*first, ("user", "request")]
        t.line("/clear", PROMPT)
        assert conversation(t) == [("system", "s"), ("user", "request")]
        t.line("/system other one", PROMPT)
        assert conversation(t) == [("system", "other one"), ("user", "request")]
        t.line("/system", PROMPT)
        t.line("fail", "layer 3 expert 5.*" + PROMPT)  # leaves no trace
        assert conversation(t) == [("user", "request")]


def test_ctrl_c_stops_the_answer_and_keeps_the_chat(terminal):
    with terminal("run", "demo") as t:
        t.wait(PROMPT)
        t.line("long", "word word word ")
        t.type("\x03")
        t.wait(r"\(stopped\).*" + PROMPT)
        words = conversation(t)
        assert words[0] == ("user", "long") and words[1][0] == "assistant"
        assert words[1][1].startswith("word word ")  # interrupted answers stay as they are
        t.line("hello", "You said: hello\n\n" + PROMPT)
        t.line("long", "word word ")
        os.kill(t.pid, signal.SIGTERM)
        assert t.finish() == 143
    with terminal("run", "demo") as t:
        t.wait(PROMPT)
        os.kill(t.pid, signal.SIGTERM)
        assert t.finish() == 143


def test_chat_says_when_the_context_is_full(terminal):
    with terminal("run", "demo", "--ctx", "400") as t:
        t.wait(PROMPT)
        t.line("fill", r"the context is full \(\d+ tokens.*of\s+prompt.*" + PROMPT)
        t.line("hello", r"tokens, the context\s+holds 400.*/clear.*" + PROMPT)
        t.line("/clear", PROMPT)
        t.line("hello", "You said: hello\n\n" + PROMPT)
        t.line("x" * 1500, "does not fit.*" + PROMPT)
        t.line("hello", "You said: hello\n\n" + PROMPT)


def test_chat_answers_may_go_to_a_file(terminal, tmp_path):
    with open(tmp_path / "answers", "w+") as answers:
        with terminal("run", "demo", stdout=answers) as t:
            t.wait(PROMPT)
            t.line("hello", PROMPT)
            t.line("/bye", "")
            assert t.finish() == 0
        answers.seek(0)
        assert answers.read() == "You said: hello\n"


def test_chat_is_not_for_json_or_raw(terminal):
    for option in ("--json", "--raw"):
        with terminal("run", "demo", option) as t:
            assert t.finish() == 2
