"""The budget in the kernel's eyes: the program inside a control group whose limit is --mem, without swap; and
what it leaves in the page cache, which is nothing."""
import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from cgroup import Group, NoGroup
from conftest import ROOT

EXAMPLES = json.loads((ROOT / "models" / "demo" / "examples.json").read_text())["examples"]
OWL = EXAMPLES[0]["messages"][0]["content"]
STORY = "Tell me a story about a fox and an owl."
CTX = 1024
KIB, MIB = 1 << 10, 1 << 20
NOBODY = 65534


def long_chat():
    """A conversation of many turns that nearly fills the context."""
    messages = []
    for example in (e for e in EXAMPLES if not e["enable_thinking"] and "tools" not in e):
        if len(messages) >= 50:
            break
        if len(example["messages"]) == 1:
            messages += [*example["messages"], {"role": "assistant", "content": example["answer"]}]
    return {"messages": [*messages, {"role": "user", "content": "What is the capital of Italy?"}]}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Arguments of `run` for each kind of work."""
    folder = tmp_path_factory.mktemp("inputs")
    chat, full = folder / "chat.json", folder / "full.json"
    chat.write_text(json.dumps(long_chat()))
    # 700 tokens of prompt, and an answer that has to stop where the context ends.
    long = next(e for e in EXAMPLES if len(e["prompt_ids"]) == 710)
    full.write_text(json.dumps({"messages": [*long["messages"], {"role": "assistant", "content": long["answer"]},
                                             *EXAMPLES[0]["messages"], {"role": "assistant", "content": "An owl."},
                                             *long_chat()["messages"][:12], {"role": "user", "content": STORY}]}))
    return {"prompt": [OWL, "--temp", "0"], "chat": ["--chat", chat, "--temp", "0"],
            "full": ["--chat", full, "--seed", "7"],
            # So warm that no token is likely, the end of the answer included.
            "story": [STORY, "--temp", "20", "--top-p", "1", "--top-k", "0", "--seed", "3", "--max-tokens", "200"]}


def plan(sluice, store, mem, *more):
    r = subprocess.run([sluice, "plan", store, "--json", "--mem", mem, "--ctx", str(CTX), *map(str, more)],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode in (0, 3), r.stderr
    return json.loads(r.stdout)


def mem_of(kind, sluice, store, *more):
    """A budget in bytes, a multiple of 4 KiB. The largest: everything stays in memory."""
    if kind == "floor":
        return plan(sluice, store, "1M", *more)["smallest_bytes"]
    if kind == "largest":
        most = plan(sluice, store, "1G", *more)
        assert most["hot_slots"] == most["experts"] and most["tensors_streamed"] == 0
        return most["total_bytes"]
    return int(kind[:-1]) * MIB


def group_of(limit):
    try:
        return Group(limit)
    except NoGroup as e:
        pytest.skip(f"no memory control group: {e}")


def cached_bytes(path):
    """Bytes of a file that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    size = os.path.getsize(path)
    if size == 0:
        return 0
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    fd = os.open(path, os.O_RDONLY)
    try:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        assert at not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
        failed = libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages)
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
        assert not failed, os.strerror(ctypes.get_errno())
    finally:
        os.close(fd)
    return sum(p & 1 for p in pages) * mmap.PAGESIZE


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


class OwnProgram:
    """A copy of the program and of every library it loads, so that none of their pages is in memory
    already, charged to somebody else: as on a machine on which nothing else runs."""

    def __init__(self, sluice, folder):
        libraries = re.findall(r"(/\S+)", subprocess.run(["ldd", sluice], capture_output=True, text=True, check=True).stdout)
        self.files = [shutil.copy2(f, folder) for f in [sluice, *libraries]]
        loader = next(f for f in self.files if os.path.basename(f).startswith("ld-"))
        self.folder = folder
        self.command = [loader, "--inhibit-cache", "--library-path", folder, self.files[0]]
        folder.chmod(0o755)

    def cold(self):
        """The command, with nothing of it in the page cache."""
        for file in self.files:
            evict(file)
            assert cached_bytes(file) == 0, f"{file} stays in the page cache"
        return self.command


@pytest.fixture(scope="module")
def program(sluice, tmp_path_factory):
    return OwnProgram(sluice, tmp_path_factory.mktemp("program"))


def run_inside(program, store, mem, arguments, before="", prefix=()):
    """`run --json` inside a group of exactly mem bytes. Holds it to everything that a budget promises and
    returns its object, with the group's peak."""
    assert mem % KIB == 0
    with group_of(mem) as group:
        r = group.run([*prefix, *program.cold(), "run", store, "--json", "-q", "--mem", f"{mem // KIB}K", "--ctx", CTX,
                       *arguments],
                      before=before, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        failures, peak = group.failures(), group.peak_bytes()
        told = f"budget {mem}, peak {peak}, exit {r.returncode}, {failures}: {r.stderr}\n{r.stdout}"
        assert r.returncode == 0, told
        assert failures == {"failed": 0, "killed": 0}, told
        assert peak is None or peak <= mem, told
    answer = json.loads(r.stdout)
    assert answer["mem_bytes"] == mem
    assert answer["peak_bytes"] <= mem, told
    return {**answer, "group_peak": peak}


CHECKS = {
    "prompt": lambda answer: answer["text"] == EXAMPLES[0]["answer"],
    "chat": lambda answer: answer["prompt_tokens"] > 700 and "Rome" in answer["text"],
    "full": lambda answer: answer["finish"] == "length" and answer["prompt_tokens"] + len(answer["tokens"]) >= CTX,
    "story": lambda answer: len(answer["tokens"]) == 200 and answer["finish"] == "length",
}


def hold_to_plan(sluice, store, mem, answer, *options):
    """The peak is within what was planned, and what was planned and is no reserve is used."""
    p = plan(sluice, store, f"{mem // KIB}K", *options)
    unused = p["total_bytes"] - p["accounts"]["reserve"] - answer["peak_bytes"]
    print(f"planned {p['total_bytes']}, peak {answer['peak_bytes']} (group {answer['group_peak']}), "
          f"unused {unused / p['total_bytes']:.1%}")
    assert p["total_bytes"] <= mem
    assert answer["peak_bytes"] <= p["total_bytes"]
    if mem >= 16 * MIB:
        assert unused / p["total_bytes"] <= 0.10


@pytest.mark.parametrize("work,threads", [("prompt", 1), ("chat", 1), ("full", 2), ("story", 1), ("story", 2)])
@pytest.mark.parametrize("budget", ["floor", "16M", "20M", "largest"])
def test_stays_inside(sluice, program, demo_store, inputs, budget, work, threads):
    options = ["--threads", threads]
    mem = mem_of(budget, sluice, demo_store, *options)
    answer = run_inside(program, demo_store, mem, [*inputs[work], *options])
    assert CHECKS[work](answer), answer
    hold_to_plan(sluice, demo_store, mem, answer, *options)


def test_stays_inside_with_every_processor(sluice, program, demo_store, inputs):
    """From 64 MiB the program keeps all its processors and more reads in flight."""
    mem = 64 * MIB
    answer = run_inside(program, demo_store, mem, inputs["story"])
    hold_to_plan(sluice, demo_store, mem, answer)


def smallest_of(command):
    """The smallest budget that a refusal names."""
    r = subprocess.run([*map(str, command), "--mem", "1M"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 3, r.stderr
    return int(re.search(r"\((\d+) bytes\)", r.stderr)[1])


@pytest.mark.parametrize("io", ["uring", "pread"])
@pytest.mark.parametrize("budget", ["floor", "16M"])
def test_both_readers_stay_inside(sluice, program, demo_store, tmp_path, budget, io):
    ids, out = tmp_path / "ids.txt", tmp_path / "logits.f32"
    ids.write_text(" ".join(map(str, EXAMPLES[49]["prompt_ids"])))
    command = ["logits", demo_store, "--tokens", ids, "--out", out, "--io", io, "--threads", 1]
    probe = subprocess.run([sluice, *map(str, command)], capture_output=True, text=True, timeout=60)
    if "io_uring" in probe.stderr and probe.returncode:
        pytest.skip(probe.stderr.strip())
    mem = smallest_of([sluice, *command]) if budget == "floor" else 16 * MIB
    with group_of(mem) as group:
        r = group.run([*program.cold(), *command, "--mem", f"{mem // KIB}K"], capture_output=True, text=True, timeout=120)
        assert (r.returncode, group.failures()) == (0, {"failed": 0, "killed": 0}), r.stderr
        # The rows that were written are in the page cache of the group until they are on the drive: they are
        # the caller's. The rest is ours.
        assert (group.peak_bytes() or 0) <= mem
    assert out.stat().st_size == len(EXAMPLES[49]["prompt_ids"]) * 8192 * 4


FAMILIES = ["qwen3_next", "qwen3_moe", "olmoe", "deepseek_v3", "mixtral", "gpt_oss", "glm4_moe", "lfm2_moe"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_kind_stays_inside(sluice, program, tmp_path, family):
    """400 tokens through a tiny model of each family, at its floor and with some experts in memory: latent caches,
    rings of windowed layers, states of convolutions are all where the plan says."""
    store, ids, out = tmp_path / "store", tmp_path / "ids.txt", tmp_path / "logits.f32"
    subprocess.run([sluice, "convert", ROOT / "tests" / "data" / "goldens" / family, store], check=True, capture_output=True,
                   timeout=120)
    ids.write_text(" ".join(str((7 * i * i + 3 * i + 11) % 509) for i in range(400)))
    command = ["logits", store, "--tokens", ids, "--out", out, "--threads", 1]
    floor = smallest_of([sluice, *command])
    rows = set()
    for mem in (floor, floor + 512 * KIB, floor + 4 * MIB):
        with group_of(mem) as group:
            r = group.run([*program.cold(), *command, "--mem", f"{mem // KIB}K"], capture_output=True, text=True,
                          timeout=120)
            assert (r.returncode, group.failures()) == (0, {"failed": 0, "killed": 0}), r.stderr
            assert (group.peak_bytes() or 0) <= mem
        rows.add(out.read_bytes())
    assert len(rows) == 1 and len(rows.pop()) == 400 * 512 * 4
    below = subprocess.run([sluice, *map(str, command), f"--mem={(floor - 64 * KIB) // KIB}K"], capture_output=True, text=True)
    assert below.returncode == 3 and str(floor) in below.stderr
    assert store_cached(store) == {}


def test_a_limit_that_is_lowered(sluice, program, demo_store):
    """While a model answers, its container may hold less than before: an end in words, before the kernel makes one."""
    mem = 16 * MIB
    planned = plan(sluice, demo_store, "16M")["total_bytes"]
    with group_of(mem + 4 * MIB) as group:
        p = group.start([*program.cold(), "run", demo_store, STORY, "-q", "--mem", "16M", "--ctx", CTX, "--cpu", "ref",
                         "--temp", "20", "--top-p", "1", "--top-k", "0", "--seed", "3"],
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert p.stdout.read(1)
            p.send_signal(signal.SIGSTOP)
            usage = group.usage_bytes()
            assert usage < planned
            limit = (usage + planned) // 2 // (4 * KIB) * 4 * KIB
            group.lower(limit)
            time.sleep(1.1)  # it looks once a second
            p.send_signal(signal.SIGCONT)
            _, err = p.communicate(timeout=60)
        finally:
            p.kill()
            p.wait()
        failures = group.failures()
    err = err.decode()
    assert p.returncode == 3, err
    assert f"({limit} bytes)" in err and f"({planned // 4096 * 4096} bytes)" in err, err
    assert failures["killed"] == 0


def test_a_limit_below_the_plan(sluice, program, demo_store):
    """Refused at open, before there is anything that could be killed."""
    limit = 12 * MIB
    with group_of(limit) as group:
        r = group.run([*program.cold(), "run", demo_store, STORY, "--mem", "16M", "--ctx", CTX],
                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert r.returncode == 3 and f"({limit} bytes)" in r.stderr, r.stderr
        assert group.failures() == {"failed": 0, "killed": 0}


def test_below_the_floor(sluice, demo_store):
    for threads in ("1", "2"):
        floor = mem_of("floor", sluice, demo_store, "--threads", threads)
        below = [f"--mem={(floor - 64 * KIB) // KIB}K", f"--ctx={CTX}", "--threads", threads]
        r = subprocess.run([sluice, "run", demo_store, OWL, *below], capture_output=True, text=True, timeout=60)
        assert r.returncode == 3 and r.stdout == ""
        assert str(floor) in r.stderr
        p = subprocess.run([sluice, "plan", demo_store, "--json", *below], capture_output=True, text=True, timeout=60)
        assert p.returncode == 3 and json.loads(p.stdout)["smallest_bytes"] == floor


@pytest.mark.skipif(os.geteuid() != 0, reason="is an ordinary user already")
@pytest.mark.parametrize("budget", ["floor", "16M"])
def test_ordinary_user(sluice, program, demo_store, inputs, budget):
    """With the 8 MiB of locked memory that a system grants by default."""
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv")
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for folder in (demo_store, *demo_store.parents[:3], *program.folder.parents[:2]):
        if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o77 == 0:
            folder.chmod(0o755)
    if subprocess.run([*as_nobody, "test", "-r", demo_store / "manifest.json"]).returncode:
        pytest.skip(f"an ordinary user cannot reach {demo_store}")
    mem = mem_of(budget, sluice, demo_store, "--threads", "1")
    answer = run_inside(program, demo_store, mem, [*inputs["prompt"], "--threads", "1"], before="ulimit -l 8192",
                        prefix=as_nobody)
    assert CHECKS["prompt"](answer)


def store_cached(store):
    return {str(f.relative_to(store)): cached_bytes(f) for f in store.rglob("*") if f.is_file() and cached_bytes(f)}


def test_page_cache_stays_clean(sluice, tmp_path):
    """No page of the store's files is cached: not after the conversion that wrote them, nor after anything
    that reads them."""
    store = tmp_path / "demo"
    subprocess.run([sluice, "convert", ROOT / "models" / "demo", store], check=True, capture_output=True, timeout=120)
    assert store_cached(store) == {}
    floor = f"{mem_of('floor', sluice, store) // KIB}K"
    for command in (["plan", store, "--mem", "16M", "--ctx", CTX], ["show", store], ["verify", store],
                    ["run", store, OWL, "--mem", floor, "--ctx", CTX], ["run", store, OWL, "--mem", "64M"]):
        r = subprocess.run([sluice, *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, r.stderr
        assert store_cached(store) == {}, command
    # The measurement itself can see a cached file.
    (store / "text.bin").read_bytes()
    assert list(store_cached(store)) == ["text.bin"]
