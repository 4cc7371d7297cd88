"""The program that people run, with the demo model: the examples' answers through every verb, budgets, a
conversion that is interrupted, a chat on a terminal, signals and pipes."""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import time

import pytest

from conftest import ROOT
from terminal import Terminal

DEMO = ROOT / "models" / "demo"
EXAMPLES = json.loads((DEMO / "examples.json").read_text())["examples"]
OWL = EXAMPLES[0]


@pytest.fixture
def home(tmp_path, demo_store):
    """A SLUICE_HOME in which the demo model has its name."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "demo").symlink_to(demo_store)
    return tmp_path


@pytest.fixture
def cli(sluice, home):
    def run(*args, stdin=subprocess.DEVNULL, **more):
        given = {"input": stdin} if isinstance(stdin, (str, bytes)) else {"stdin": stdin}
        return subprocess.run([sluice, *map(str, args)], **given, **{
            **dict(capture_output=True, text=True, timeout=120, env={**os.environ, "SLUICE_HOME": str(home)}), **more})

    return run


def ask(cli, example, tmp_path, *args):
    """The object of run --json for an example of the demo model."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({k: example[k] for k in ("messages", "tools", "enable_thinking") if k in example}))
    r = cli("run", "demo", "--chat", file, "--json", "--temp", "0", "-q", *args)
    assert r.returncode == 0 and r.stdout.count("\n") == 1, r.stderr
    return json.loads(r.stdout)


def kinds():
    """One example of each kind: plain, thinking, with a system message, a conversation, with tools."""
    seen = {}
    for i, e in enumerate(EXAMPLES):
        key = (e["enable_thinking"], "tools" in e, len(e["messages"]) > 1, e["messages"][0]["role"])
        seen.setdefault(key, i)
    return sorted(seen.values())


@pytest.mark.parametrize("index", kinds())
def test_examples_are_answered(cli, tmp_path, index):
    example = EXAMPLES[index]
    o = ask(cli, example, tmp_path)
    assert o["prompt_tokens"] == len(example["prompt_ids"])
    assert o["tokens"] == example["answer_ids"]
    reasoning, _, text = example["answer"].rpartition("</think>")
    assert o["reasoning"].strip() == reasoning.strip()
    if "<tool_call>" in text:
        assert o["finish"] == "tool_calls" and len(o["tool_calls"]) == text.count("<tool_call>")
        for call in o["tool_calls"]:
            assert f"<function={call['name']}>" in text and isinstance(call["arguments"], dict)
    else:
        assert o["finish"] == "stop" and o["text"].strip() == text.strip() and o["tool_calls"] == []


def test_answer_alone_on_stdout(cli):
    r = cli("run", "demo", "--temp", "0", OWL["messages"][0]["content"])
    assert (r.returncode, r.stdout) == (0, OWL["answer"] + "\n"), r.stderr
    assert r.stderr.startswith("budget ") and ", seed " in r.stderr and "\r" not in r.stderr and "\033" not in r.stderr
    assert cli("run", "demo", "--temp", "0", "-q", stdin=OWL["messages"][0]["content"] + "\n").stdout == r.stdout


def test_thinking_goes_to_stderr(cli):
    example = next(e for e in EXAMPLES if e["enable_thinking"] and len(e["messages"]) == 1)
    reasoning, text = example["answer"].split("</think>")
    r = cli("run", "demo", "--temp", "0", "--think", "on", example["messages"][0]["content"])
    assert r.stdout == text.strip() + "\n" and reasoning.strip() in r.stderr


def test_raw_continues_the_prompt(cli):
    r = cli("run", "demo", "--temp", "0", "-q", "--raw", OWL["rendered"])
    assert r.stdout == OWL["answer"] + "\n"


def test_stop_and_max_tokens(cli, tmp_path):
    o = ask(cli, OWL, tmp_path, "--stop", "bird of")
    assert o["text"] == OWL["answer"].split("bird of")[0] and o["finish"] == "stop"
    o = ask(cli, OWL, tmp_path, "--max-tokens", "5")
    assert o["tokens"] == OWL["answer_ids"][:5] and o["finish"] == "length"


def test_one_seed_one_answer(cli):
    args = ("run", "demo", "Tell me a story about a fox.", "--json", "-q", "--temp", "1", "--max-tokens", "40")
    first = json.loads(cli(*args, "--seed", "7").stdout)
    assert first["seed"] == 7
    again = json.loads(cli(*args, "--seed", "7", "--threads", "1", "--chunk", "7", "--io", "pread").stdout)
    assert first["tokens"] == again["tokens"]
    other = json.loads(cli(*args, "--seed", "8").stdout)
    assert first["tokens"] != other["tokens"]


def test_smallest_budget_is_true(cli, tmp_path):
    options = ("--ctx", "512", "--threads", "2")
    smallest = json.loads(cli("plan", "demo", *options, "--json").stdout)["smallest_bytes"]
    size = f"{-(-smallest // 1024)}K"
    o = ask(cli, OWL, tmp_path, "--mem", size, *options)
    assert o["tokens"] == OWL["answer_ids"] and o["peak_bytes"] <= o["mem_bytes"]
    below = f"{smallest // 1024 - 64}K"
    r = cli("run", "demo", "x", "--mem", below, *options)
    assert r.returncode == 3 and r.stdout == "", r.stderr
    # The program's own memory is counted in pages as they are in use, which differs a little.
    assert abs(int(re.search(r"--mem (\d+)K", r.stderr)[1]) - smallest // 1024) <= 64
    r = cli("plan", "demo", "--mem", below, *options)
    assert r.returncode == 3 and "Does not fit" in r.stdout
    assert cli("plan", "demo", "--mem", size, *options).returncode == 0


def test_plan_reads_well(cli):
    for model in ("demo", DEMO, DEMO / "config.json"):
        r = cli("plan", model, "--mem", "64M", "--ctx", "2048")
        assert r.returncode == 0, r.stderr
        assert max(map(len, r.stdout.split("\n")[1:])) <= 80 and "total" in r.stdout  # the first is the path
    o = json.loads(cli("plan", "demo", "--mem", "64M", "--json").stdout)
    assert o["fits"] and sum(o["accounts"].values()) == o["total_bytes"] <= o["budget_bytes"] == 64 << 20


def test_stats(cli):
    r = cli("run", "demo", "--temp", "0", "--stats", "--mem", "24M", "--ctx", "512", OWL["messages"][0]["content"])
    for name in ("prefill", "decode", "experts", "read", "memory"):
        assert re.search(rf"^{name} +\S", r.stderr, re.M), r.stderr


def test_context_is_never_cut(cli):
    r = cli("run", "demo", stdin="word " * 2000, timeout=60)
    assert r.returncode in (0, 1)
    r = cli("run", "demo", "--ctx", "64", stdin="word " * 100)
    assert r.returncode == 1 and r.stdout == "" and "the context holds 64" in r.stderr
    r = cli("run", "demo", "--ctx", "64", "--temp", "0", "Tell me a story about a fox and an owl.")
    assert r.returncode == 0 and "the context is full" in r.stderr and r.stdout


def test_pictures_are_refused(cli, tmp_path):
    """A template writes a placeholder for a picture, and the model would answer as if it had seen one."""
    for part in ({"type": "image", "image": "cat.png"}, {"image_url": {"url": "x"}}, {"type": "video", "video": "x"}):
        chat = {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "What do you see?"}]}]}
        r = cli("run", "demo", "--chat", "-", "-q", "--ctx", "256", stdin=json.dumps(chat))
        assert r.returncode == 2 and r.stdout == "" and "reads text only" in r.stderr
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "capital of Peru?"}]}]}
    r = cli("run", "demo", "--chat", "-", "-q", "--ctx", "256", "--temp", "0", stdin=json.dumps(chat))
    assert r.stdout == "The capital of Peru is Lima.\n"


def test_no_standard_output_ends_quietly(sluice, home):
    r = subprocess.run(["sh", "-c", '"$0" run demo "capital of Peru?" -q --ctx 256 >&-', sluice], capture_output=True,
                       text=True, timeout=60, env={**os.environ, "SLUICE_HOME": str(home)})
    assert (r.returncode, r.stderr) == (0, "")


def test_tokenize_and_template(cli, tmp_path):
    for model in ("demo", DEMO):
        for e in EXAMPLES[::7]:
            file = tmp_path / "chat.json"
            file.write_text(json.dumps({"add_generation_prompt": True,
                                        **{k: e[k] for k in ("messages", "tools", "enable_thinking") if k in e}}))
            assert cli("template", model, file).stdout == e["rendered"]
            ids = cli("tokenize", model, "-", stdin=e["rendered"]).stdout
            assert ids == " ".join(map(str, e["prompt_ids"])) + "\n"
            assert cli("tokenize", model, "--decode", stdin=ids).stdout == e["rendered"]
    assert cli("template", DEMO / "chat_template.jinja", file).stdout == e["rendered"]
    assert cli("tokenize", DEMO / "tokenizer.json", stdin=e["rendered"]).stdout == ids
    plain = cli("tokenize", "demo", "--plain", stdin="<|im_end|>").stdout.split()
    assert len(plain) > 1 and cli("tokenize", "demo", stdin="<|im_end|>").stdout.split() == ["8181"]
    (tmp_path / "bad.json").write_text("{")
    assert cli("template", "demo", tmp_path / "bad.json").returncode == 2


def test_logits(cli, tmp_path):
    ids = OWL["prompt_ids"]
    (tmp_path / "ids").write_text("\n".join(map(str, ids)))
    out, hidden = tmp_path / "out", tmp_path / "hidden"
    r = cli("logits", "demo", "--tokens", tmp_path / "ids", "--out", out, "--hidden", hidden)
    assert r.returncode == 0, r.stderr
    assert out.stat().st_size == len(ids) * 8192 * 4 and hidden.stat().st_size == 13 * len(ids) * 192 * 4
    last = struct.unpack("<8192f", out.read_bytes()[-8192 * 4:])
    assert last.index(max(last)) == OWL["answer_ids"][0]
    again = tmp_path / "again"
    assert cli("logits", "demo", "--tokens", tmp_path / "ids", "--out", again, "--cpu", "ref", "--chunk", "3",
               "--threads", "1").returncode == 0
    assert again.read_bytes() == out.read_bytes()
    (tmp_path / "ids").write_text("8192")
    r = cli("logits", "demo", "--tokens", tmp_path / "ids", "--out", tmp_path / "none")
    assert r.returncode == 2 and not list(tmp_path.glob("none*"))


def test_logits_into_what_is_no_file(cli, tmp_path):
    """Devices, pipes and links are written to; a file in their place would break the machine."""
    ids, target, link, pipe = (tmp_path / name for name in ("ids", "target", "link", "pipe"))
    ids.write_text("1 2 3")
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert cli("logits", "demo", "--tokens", ids, "--out", link, "-q").returncode == 0
        assert link.is_symlink() and target.stat().st_size == 3 * 8192 * 4
        ids.write_text("1")
        assert cli("logits", "demo", "--tokens", ids, "--out", pipe, "-q").returncode == 0
        assert pipe.is_fifo() and os.read(reader, 8192 * 4) == target.read_bytes()[:8192 * 4]
    finally:
        os.close(reader)
    r = cli("logits", "demo", "--tokens", ids, "--out", target, "--hidden", target)
    assert r.returncode == 2 and "two" in r.stderr


def test_show_verify_doctor_ls(cli):
    assert cli("show", "demo").returncode == 0 and json.loads(cli("show", "demo", "--json").stdout)
    assert cli("verify", "demo").returncode == 0 and json.loads(cli("verify", "demo", "--json").stdout)["ok"]
    assert cli("doctor", "demo").returncode == 0 and json.loads(cli("doctor", "demo", "--json").stdout)
    assert cli("doctor").returncode == 0
    assert cli("ls", "--names").stdout == "demo\n"


def test_damage_is_named(cli, demo_store, tmp_path):
    store = tmp_path / "damaged"
    shutil.copytree(demo_store, store)
    with open(store / "experts" / "003.bin", "r+b") as f:
        f.seek(4096)
        f.write(b"\xff" * 16)
    r = cli("verify", store)
    assert r.returncode == 4 and "003" in r.stdout
    o = json.loads(cli("verify", store, "--json").stdout)
    assert not o["ok"] and o["damaged"] >= 1 and o["error"]["code"] == "corrupt"
    (store / "manifest.json").write_text("{")
    assert cli("run", store, "x").returncode == 4


def test_convert_from_start_to_removal(cli, home):
    r = cli("convert", DEMO, "second")
    assert r.returncode == 0 and "Next: sluice run second" in r.stdout, r.stderr
    assert cli("convert", DEMO, "second").returncode == 1  # --force is needed
    o = json.loads(cli("convert", DEMO, "second", "--force", "--json").stdout)
    assert o["path"] == str(home / "models" / "second") and o["peak_bytes"] < 300 << 20 and o["has_template"]
    assert cli("run", "second", "-q", "--temp", "0", OWL["messages"][0]["content"]).stdout == OWL["answer"] + "\n"
    assert cli("rm", "second").returncode == 2
    assert cli("rm", "second", "--yes").returncode == 0 and not (home / "models" / "second").exists()
    assert cli("rm", DEMO, "--yes").returncode == 4 and DEMO.exists()  # not ours
    for name in ("demo", home / "models" / "demo"):  # a link: what it leads to stays whole
        r = cli("rm", name, "--yes")
        assert r.returncode == 1 and "symbolic link" in r.stderr
        assert cli("verify", "demo").returncode == 0
    web = home / "web"  # a project that has a manifest.json of its own
    web.mkdir()
    (web / "manifest.json").write_text("{}")
    assert cli("rm", web, "--yes").returncode == 4 and (web / "manifest.json").exists()
    assert cli("convert", home).returncode == 4


def test_interrupted_conversion_goes_on(cli, sluice, home, tmp_path):
    target = tmp_path / "again"
    for delay in (0.02, 0.05, 0.1, 0.2):
        p = subprocess.Popen([sluice, "convert", DEMO, target], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL)
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        assert p.returncode in (0, 130, -2), err  # -2: before the program could ask for the signal
        assert target.exists() == (p.returncode == 0)
        if p.returncode == 0:
            break
    if not target.exists():
        assert cli("convert", DEMO, target).returncode == 0
    assert cli("verify", target).returncode == 0


def test_run_in_place(cli):
    """The demo's checkpoint is quantized: it runs as it is, and says what the store says."""
    prompt = ["What is the capital of Italy?", "--temp", "0", "--mem", "32M", "--json"]
    mine, theirs = (json.loads(cli("run", model, *prompt).stdout) for model in (DEMO, "demo"))
    assert mine["tokens"] == theirs["tokens"] and mine["text"] == theirs["text"]


def test_move(cli, tmp_path):
    checkpoint, store = tmp_path / "demo", tmp_path / "moved"
    shutil.copytree(DEMO, checkpoint)
    assert cli("convert", checkpoint, store, "--move").returncode == 2  # nobody said yes
    assert cli("convert", checkpoint, store, "--move", "--force", "--yes").returncode == 2
    assert cli("convert", checkpoint, store, "--move", "--yes").returncode == 0
    assert cli("verify", store).returncode == 0
    assert not list(checkpoint.glob("model*.safetensors")) and (checkpoint / "config.json").exists()
    assert not (checkpoint / "sluice-move").exists()


def test_run_on_a_checkpoint_names_the_commands(cli, tmp_path):
    unquantized = ROOT / "tests" / "data" / "goldens" / "olmoe"
    (tmp_path / "other").symlink_to(unquantized)
    r = cli("run", tmp_path / "other", "x")
    assert r.returncode == 4 and f"\n  sluice convert {tmp_path}/other\n  sluice run other\n" in r.stderr and r.stdout == ""
    (tmp_path / "demo").symlink_to(unquantized)
    r = cli("run", tmp_path / "demo", "x")  # a model of that name exists
    assert r.returncode == 4 and "'sluice run demo'" in r.stderr


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_an_answer(sluice, home, number, code):
    with subprocess.Popen([sluice, "run", "demo", "Tell me a story about a fox and an owl.", "--temp", "1", "--cpu", "ref",
                           "--mem", "24M", "--ctx", "1024"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**os.environ, "SLUICE_HOME": str(home)}) as p:
        assert p.stdout.read(1)
        p.send_signal(number)
        p.communicate(timeout=20)
        assert p.returncode in (code, 0)  # 0: the answer was over first


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("verb", ["run", "prompt", "plan", "verify", "logits", "bench", "trace", "convert", "move", "doctor"])
def test_signals_end_every_verb(sluice, home, tmp_path, verb, number, code):
    """At any moment, from before the program is ready on: it ends soon, says so by its exit code, and the same again
    works. What was there before is there afterwards."""
    copy, out = tmp_path / "checkpoint", tmp_path / "out"
    ids = [str(e["prompt_ids"][i % len(e["prompt_ids"])]) for e in EXAMPLES[:8] for i in range(60)]
    (tmp_path / "ids").write_text(" ".join(ids))
    slow = ["--cpu", "ref", "--mem", "24M", "--ctx", "1024"]
    command = {"run": ["run", "demo", "Tell me a story about a fox and an owl.", "--temp", "1", *slow],
               "prompt": ["run", "demo", "word " * 500, "--max-tokens", "1", *slow],
               "plan": ["plan", "demo"], "doctor": ["doctor", "demo"], "verify": ["verify", "demo"],
               "logits": ["logits", "demo", "--tokens", tmp_path / "ids", "--out", out, "--cpu", "ref", "--mem", "24M"],
               "bench": ["bench", "demo", "--mem", "16M"],
               "trace": ["trace", "record", "demo", "--stream", tmp_path / "ids", "--out", out, "--cpu", "ref",
                         "--mem", "24M"],
               "convert": ["convert", copy, out], "move": ["convert", copy, out, "--move", "--yes"]}[verb]
    shutil.copytree(DEMO, copy)
    seen = set()
    for delay in (0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3):
        with subprocess.Popen([sluice, *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env={**os.environ, "SLUICE_HOME": str(home)}) as p:
            time.sleep(delay)
            p.send_signal(number)
            _, err = p.communicate(timeout=20)
        # -number: before the program could ask for the signal.
        assert p.returncode in (0, code, -number), err
        seen.add(p.returncode)
        if p.returncode == 0 and verb in ("convert", "move"):
            break
    print(seen)
    assert seen != {0}
    if verb in ("convert", "move"):
        if not out.exists():
            r = subprocess.run([sluice, *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            assert r.returncode == 0, r.stderr
        assert subprocess.run([sluice, "verify", out, "-q"], stdin=subprocess.DEVNULL, timeout=60).returncode == 0
    assert subprocess.run([sluice, "run", "demo", OWL["messages"][0]["content"], "-q", "--temp", "0", "--mem", "24M"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "SLUICE_HOME": str(home)}).stdout == OWL["answer"] + "\n"


def test_a_reader_that_left_ends_quietly(sluice, home):
    read, write = os.pipe()
    os.close(read)
    r = subprocess.run([sluice, "run", "demo", "-q", "Tell me a story about a fox and an owl."], stdin=subprocess.DEVNULL,
                       stdout=write, stderr=subprocess.PIPE, timeout=60, env={**os.environ, "SLUICE_HOME": str(home)})
    os.close(write)
    assert (r.returncode, r.stderr) == (0, b"")


def test_closed_streams_do_not_become_files(sluice, home, tmp_path):
    """What is said where nobody listens must not land in a file that took the stream's number."""
    def close_all():
        for fd in range(3):
            os.close(fd)
    target = tmp_path / "closed"
    p = subprocess.Popen([sluice, "convert", DEMO, target], preexec_fn=close_all)
    assert p.wait(60) == 0
    assert subprocess.run([sluice, "verify", target, "-q"], stdin=subprocess.DEVNULL, timeout=60).returncode == 0
    with subprocess.Popen([sluice, "run", "demo", "Tell me a story about a fox and an owl.", "--temp", "1", "--cpu", "ref",
                           "--mem", "24M", "--ctx", "1024"], stdout=subprocess.PIPE,
                          env={**os.environ, "SLUICE_HOME": str(home)},
                          preexec_fn=lambda: (os.close(0), os.close(2))) as p:
        assert p.stdout.read(1)
        p.send_signal(signal.SIGSTOP)
        try:
            assert {os.readlink(f"/proc/{p.pid}/fd/{fd}") for fd in (0, 2)} == {"/dev/null"}
        finally:
            p.send_signal(signal.SIGCONT)
        p.communicate(timeout=60)
        assert p.returncode == 0


def test_a_pause_changes_nothing(sluice, home):
    """Stopped and continued, as a laptop that sleeps: the same answer."""
    command = [sluice, "run", "demo", "Tell me a story about a fox and an owl.", "--temp", "1", "--seed", "5", "-q", "--cpu",
               "ref", "--mem", "24M", "--ctx", "1024"]
    more = {"stdin": subprocess.DEVNULL, "env": {**os.environ, "SLUICE_HOME": str(home)}}
    whole = subprocess.run(command, capture_output=True, timeout=60, **more).stdout
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, **more) as p:
        first = p.stdout.read(1)
        for _ in range(5):
            p.send_signal(signal.SIGSTOP)
            time.sleep(0.02)
            p.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        rest, _ = p.communicate(timeout=60)
        assert p.returncode == 0 and first + rest == whole


def test_few_descriptors_and_little_address_space(sluice, home):
    """Whatever the limit, it is an answer or an error in words; never a crash."""
    command = [sluice, "run", "demo", OWL["messages"][0]["content"], "-q", "--temp", "0", "--mem", "24M", "--ctx", "1024"]
    answers = set()
    for what, values in ((resource.RLIMIT_NOFILE, range(4, 26)),
                         (resource.RLIMIT_AS, (kib << 10 for kib in (8000, 12000, 16000, 24000, 32000, 40000, 1 << 20)))):
        for value in values:
            r = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                               env={**os.environ, "SLUICE_HOME": str(home)},
                               preexec_fn=lambda: resource.setrlimit(what, (value, value)))
            if r.returncode == 127 and "shared libraries" in r.stderr:
                continue  # the program never began
            answers.add((what, r.returncode))
            if r.returncode == 0:
                assert r.stdout == OWL["answer"] + "\n"
            else:
                assert r.returncode == 1 and re.search("Too many open files|Cannot allocate memory", r.stderr), r.stderr
    assert len(answers) == 4  # both limits were in the way, and both were enough in the end


def test_chat(sluice, home):
    with Terminal([sluice, "run", "demo", "--temp", "0"], {"SLUICE_HOME": str(home)}) as t:
        t.wait(">>> $", 30)
        t.line("What is the capital of Spain?", r"The capital of Spain is Madrid\.\n\n>>> $", 30)
        t.line("And of Italy?", r"The capital of Italy is Rome\.\n\n>>> $", 30)
        t.line("/system Answer with one word only.", ">>> $")
        t.line("What is the capital of France?", r"Paris\n\n>>> $", 30)
        assert t.leave() == 0
