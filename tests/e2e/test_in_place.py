"""A checkpoint as it was downloaded, in the kernel's eyes: inside a control group of the budget, tokenizer made at open
included, it answers as the store that is converted from it, and leaves nothing in the page cache."""
import pathlib
import subprocess

import pytest

from conftest import ROOT, _built
from test_budget import CTX, KIB, MIB, cached_bytes, group_of, inputs, mem_of, plan, program, run_inside, smallest_of

__all__ = ["inputs", "program"]  # fixtures
DEMO = ROOT / "models" / "demo"
GOLDENS = ["qwen3_5_moe", "qwen3_next", "qwen3_moe", "olmoe", "mixtral", "deepseek_v3", "glm4_moe", "lfm2_moe"]


def cached(folder):
    return {p.name: cached_bytes(p) for p in folder.iterdir() if cached_bytes(p) and p.suffix == ".safetensors"}


@pytest.fixture(scope="module")
def checkpoint(build_dir, tmp_path_factory):
    """A model of the demo's shape in MLX's layout, with the demo's tokenizer."""
    synth = _built(pathlib.Path(build_dir) / "sluice-synth", "SLUICE_BUILD")
    folder = tmp_path_factory.mktemp("in-place") / "demo"
    subprocess.run([synth, "--config", DEMO / "config.json", "--tokenizer", DEMO, folder], check=True,
                   capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def store(sluice, checkpoint, tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "demo"
    r = subprocess.run([sluice, "convert", checkpoint, path], check=True, capture_output=True, text=True, timeout=120)
    assert "one read instead of 9" in " ".join(r.stdout.split())
    return path


@pytest.mark.parametrize("budget", ["floor", "18M", "24M", "largest"])
def test_stays_inside_and_answers_the_same(sluice, program, checkpoint, store, inputs, budget):
    mem = mem_of(budget, sluice, checkpoint, "--threads", 1)
    mine = run_inside(program, checkpoint, mem, [*inputs["story"], "--threads", 1])
    theirs = run_inside(program, store, 24 * MIB, [*inputs["story"], "--threads", 1])
    assert mine["tokens"] == theirs["tokens"] and len(mine["tokens"]) == 200
    assert cached(checkpoint) == {}


def test_the_plan_says_so(sluice, checkpoint, store):
    mine, theirs = plan(sluice, checkpoint, "24M"), plan(sluice, store, "24M")
    assert mine["in_place"] and not theirs["in_place"]
    # The tokenizer's text, twice its image and more.
    assert mine["open_bytes"] > 2 * MIB and theirs["open_bytes"] == 0
    r = subprocess.run([sluice, "plan", checkpoint, "--mem", "24M", f"--ctx={CTX}"], capture_output=True, text=True,
                       timeout=60)
    assert "no checksums: read from the checkpoint as downloaded" in " ".join(r.stdout.split())


@pytest.mark.parametrize("family", GOLDENS)
def test_every_layer_kind_stays_inside(sluice, program, tmp_path, family):
    ids, out = tmp_path / "ids.txt", tmp_path / "logits.f32"
    folder = ROOT / "tests" / "data" / "goldens" / f"{family}-mlx4"
    ids.write_text(" ".join(str((7 * i * i + 3 * i + 11) % 509) for i in range(100)))
    command = ["logits", folder, "--tokens", ids, "--out", out, "--threads", 1]
    floor = smallest_of([sluice, *command])
    rows = set()
    for mem in (floor, floor + 512 * KIB, floor + 4 * MIB):
        with group_of(mem) as group:
            r = group.run([*program.cold(), *command, "--mem", f"{mem // KIB}K"], capture_output=True, text=True,
                          timeout=120)
            assert (r.returncode, group.failures()) == (0, {"failed": 0, "killed": 0}), r.stderr
            assert (group.peak_bytes() or 0) <= mem
        rows.add(out.read_bytes())
    assert len(rows) == 1 and len(rows.pop()) == 100 * 512 * 4
    assert cached(folder) == {}


def test_vectors_and_mxfp4(sluice, build_dir, tmp_path):
    """Biases of experts, which are widened behind the reads, and MXFP4: six reads and three for an expert."""
    synth = _built(pathlib.Path(build_dir) / "sluice-synth", "SLUICE_BUILD")
    folder, store, ids = tmp_path / "gpt", tmp_path / "store", tmp_path / "ids.txt"
    config = ROOT / "tests" / "data" / "goldens" / "gpt_oss" / "config.json"
    subprocess.run([synth, "--config", config, folder], check=True, capture_output=True, timeout=60)
    r = subprocess.run([sluice, "convert", folder, store], check=True, capture_output=True, text=True, timeout=60)
    assert "one read instead of 9" in " ".join(r.stdout.split())
    ids.write_text(" ".join(str((7 * i * i + 3 * i + 11) % 509) for i in range(100)))
    rows = set()
    for model in (folder, store):
        command = [sluice, "logits", model, "--tokens", ids, "--threads", 1, "--out", tmp_path / "out"]
        for mem in (smallest_of(command), 64 * MIB):
            subprocess.run([*map(str, command), f"--mem={mem // KIB}K"], check=True, capture_output=True, timeout=60)
            rows.add((tmp_path / "out").read_bytes())
    assert len(rows) == 1


def test_what_has_to_be_converted_says_so(sluice, tmp_path):
    """Weights of Hugging Face's layout, which are quantized first."""
    ids = tmp_path / "ids.txt"
    ids.write_text("1 2 3")
    r = subprocess.run([sluice, "logits", ROOT / "tests" / "data" / "goldens" / "olmoe", "--tokens", ids, "--out",
                        tmp_path / "out"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 4 and "sluice convert" in r.stderr and "stored otherwise" in r.stderr, r.stderr
