"""The program that makes checkpoints up, as people run it: arguments, streams, and an interruption."""
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import ROOT, _built

CONFIG = ROOT / "tests" / "data" / "goldens" / "olmoe-mlx4" / "config.json"


@pytest.fixture(scope="module")
def synth(build_dir):
    return _built(pathlib.Path(build_dir) / "sluice-synth", "SLUICE_BUILD")


def run(synth, *args):
    return subprocess.run([synth, *map(str, args)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("args, says", [
    ([], "usage"),
    (["DIR"], "--preset or --config"),
    (["--preset", "gpt-5", "DIR"], "no preset 'gpt-5'"),
    (["--preset", "olmoe-1b-7b"], "a folder to write is missing"),
    (["--config", CONFIG, "--bits", "7", "DIR"], "7 bits"),
    (["--config", CONFIG, "--seed", "-1", "DIR"], "--seed -1"),
    (["--config", CONFIG, "--common", "2", "DIR"], "--common 2"),
    (["--config", CONFIG, "A", "B"], "one folder"),
    (["--colour", "red"], "unknown option"),
])
def test_arguments_that_make_no_sense(synth, args, says):
    result = run(synth, *args)
    assert result.returncode == 2
    assert says in result.stderr


def test_stream(synth, tmp_path):
    first = run(synth, "stream", "--config", CONFIG, "--tokens", 500)
    second = run(synth, "stream", "--config", CONFIG, "--tokens", 500, "--out", tmp_path / "ids")
    other = run(synth, "stream", "--config", CONFIG, "--tokens", 500, "--seed", 2)
    ids = [int(line) for line in first.stdout.split()]
    assert len(ids) == 500
    assert (tmp_path / "ids").read_text() == first.stdout
    assert second.stdout == ""
    assert other.stdout != first.stdout


def test_written_and_checked(synth, sluice, tmp_path):
    made = run(synth, "--config", CONFIG, tmp_path / "made")
    assert made.returncode == 0, made.stderr
    subprocess.run([sluice, "convert", tmp_path / "made", tmp_path / "store"], check=True, capture_output=True,
                   timeout=120)
    for args in [[tmp_path / "made"], ["--full", tmp_path / "store", "--budget", 1]]:
        result = run(synth, "check", "--tokens", 100, *args)
        assert result.returncode == 0, result.stderr
        assert "picks that the token before had too" in result.stdout


def test_interruption_leaves_nothing(synth, tmp_path):
    # Large enough to be interrupted on any drive, and small enough for most.
    process = subprocess.Popen([synth, "--preset", "qwen3.6-35b-a3b", "--layers", "8", tmp_path / "made"],
                               stderr=subprocess.PIPE, text=True)
    partial = tmp_path / "made.partial" / "model.safetensors"
    end = time.monotonic() + 60
    while process.poll() is None and not partial.exists() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    if process.returncode == 1 and "free" in stderr:
        pytest.skip(stderr.strip())
    assert process.returncode == 130
    assert "removed" in stderr
    assert list(tmp_path.iterdir()) == []
