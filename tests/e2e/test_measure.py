"""bench and trace on the demo model: the figures are there, make sense, and agree with each other."""
import json
import re
import subprocess
import xml.etree.ElementTree as ET

import pytest


@pytest.fixture
def cli(sluice):
    def run(*args, code=0):
        r = subprocess.run([sluice, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=300)
        assert r.returncode == code, r.stdout + r.stderr
        return r

    return run


def bench(cli, store, *args):
    r = cli("bench", store, "--prompt", 32, "--tokens", 40, "--threads", 2, "-q", *args)
    assert r.stderr == ""
    return r.stdout


def test_bench_json(cli, demo_store, tmp_path):
    plot = tmp_path / "speed.svg"
    o = json.loads(bench(cli, demo_store, "--mem", "14M,24M,all", "--runs", 2, "--json", "--plot", plot))
    assert (o["prompt_tokens"], o["tokens"], o["runs"], o["guesses"], o["threads"]) == (32, 40, 2, True, 2)
    for speed in ("drive_bytes_per_second", "drive_busy_bytes_per_second", "memory_bytes_per_second"):
        assert o[speed] > 1e6
    small, middle, everything = o["budgets"]
    assert everything["mem"] == "all" and everything["read_bytes_per_token"] == 0 and everything["hit_rate"] == 1
    assert o["compute_alone_seconds_per_token"] == pytest.approx(1 / everything["tokens_per_second"], rel=1e-4)
    for b in o["budgets"]:
        assert len(b["each_run"]) == 2 and "not_run" not in b
        for r in b["each_run"]:
            seconds = 1 / r["tokens_per_second"]
            assert 0 < r["token_seconds_p50"] <= r["token_seconds_p90"] and r["open_seconds"] > 0
            assert r["wait_seconds_per_token"] + r["compute_seconds_per_token"] == pytest.approx(seconds, rel=1e-3)
            assert r["over_larger"] == pytest.approx(
                seconds / max(r["reads_alone_seconds_per_token"], o["compute_alone_seconds_per_token"]), rel=1e-3)
            assert 0 < r["peak_bytes"] <= r["budget_bytes"] and r.get("cached_bytes_before", 0) == 0
            assert r["guesses_used_per_token"] <= r["guesses_per_token"] + 1  # some were made in the prompt
            assert r["reads_alone_lost"] == 0 and r["prefill_tokens_per_second"] > 0
    assert small["drive_bytes_per_second"] > 0
    assert small["read_bytes_per_token"] > middle["read_bytes_per_token"] > 0
    assert small["hot_slots"] < middle["hot_slots"] < everything["hot_slots"]
    assert small["guesses_per_token"] > 0 and small["reads_alone_seconds_per_token"] > 0
    bars = [e for e in ET.parse(plot).iter() if e.tag.endswith("rect")]
    assert len(bars) == 3 and float(bars[2].get("height")) == max(float(e.get("height")) for e in bars)


def test_bench_text(cli, demo_store, tmp_path):
    stream = tmp_path / "ids"
    stream.write_text(" ".join(str(300 + 7 * i % 1000) for i in range(80)))
    text = bench(cli, demo_store, "--mem", "14M", "--runs", 1, "--stream", stream, "--no-guesses")
    assert max(map(len, text.split("\n")[1:])) <= 100
    assert "no guesses" in text and "~" in text and re.search(r"^ +14\.0 MiB +\d", text, re.M)
    row = re.search(r"^ +14\.0 MiB (.*)$", text, re.M)[1].split()
    assert row[-3:] == ["0.0", "0.0", "0.0"]  # no guess was made


def test_bench_says_what_cannot_be(cli, demo_store, tmp_path):
    o = json.loads(bench(cli, demo_store, "--mem", "24M,1M", "--runs", 1, "--json"))
    assert "tokens_per_second" in o["budgets"][0] and "too small" in o["budgets"][1]["not_run"]
    r = cli("bench", demo_store, "--mem", "1M", "--json", code=3)
    assert json.loads(r.stdout)["error"]["code"] == "budget"
    short = tmp_path / "ids"
    short.write_text("1 2 3")
    assert "3 tokens, 72 are needed" in cli("bench", demo_store, "--mem", "24M", "--stream", short, "--prompt", 32,
                                            "--tokens", 40, code=1).stderr
    for wrong in ("4", "4G,", "", "4G,,5G", "all,x"):
        assert "--mem" in cli("bench", demo_store, "--mem", wrong, code=2).stderr
    assert "there is no model" in cli("bench", tmp_path / "none", code=4).stderr


@pytest.fixture(scope="session")
def trace(sluice, demo_store, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "demo.trace"
    subprocess.run([sluice, "trace", "record", demo_store, "--out", path, "--tokens", "400", "--mem", "24M",
                    "-q"], check=True,
                   stdin=subprocess.DEVNULL, timeout=300)
    return path


def test_trace_replay(cli, trace):
    o = json.loads(cli("trace", "replay", trace, "--slots", 200, "--guess", 2, "--json").stdout)
    assert (o["tokens"], o["warm"], o["layers"], o["experts"], o["experts_per_token"]) == (400, 80, 12, 64, 4)
    by = {(r["policy"], r["guess_width"]): r for r in o["replays"]}
    assert set(by) == {("ours", 0), ("ours", 2), ("lru", 0), ("lfu", 0), ("belady", 0)}
    bound = by["belady", 0]["demand_reads_per_token"]
    for (_, width), r in by.items():
        assert r["over_bound"] == pytest.approx(r["demand_reads_per_token"] / bound, rel=1e-3)
        assert r["over_bound"] >= 1 or width
        uses = r["demand_reads_per_token"] + 48 * r["hit_rate"] + r["guesses_used_per_token"]
        assert uses == pytest.approx(48, rel=1e-3)
    assert by["ours", 0]["demand_reads_per_token"] < by["lru", 0]["demand_reads_per_token"]
    assert by["ours", 2]["demand_reads_per_token"] < by["ours", 0]["demand_reads_per_token"]
    text = cli("trace", "replay", trace, "--mem", "18M,24M", "--policy", "ours").stdout
    assert max(map(len, text.split("\n"))) <= 80 and len(re.findall(r" ours +\d", text)) == 2


def test_trace_is_wrong(cli, trace, tmp_path):
    cut = tmp_path / "cut.trace"
    cut.write_bytes(trace.read_bytes()[:-5])
    assert "the trace has" in cli("trace", "replay", cut, "--slots", 100, code=4).stderr
    assert "not a trace" in cli("trace", "replay", __file__, "--slots", 100, code=4).stderr
    assert "either --slots or --mem" in cli("trace", "replay", trace, code=2).stderr
    assert "not enough" in cli("trace", "replay", trace, "--slots", 8, code=3).stderr
    assert "trace record MODEL" in cli("trace", "play", trace, code=2).stderr
    out = tmp_path / "no" / "x.trace"
    assert "--out is missing" in cli("trace", "record", "demo", code=2).stderr
    assert not out.exists()
