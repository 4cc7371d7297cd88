"""A large model inside memory control groups of exactly its budgets, without swap: no charge may fail, the peak stays
within the budget, and the logits are the same bits at every budget. Token by token, as an answer is computed.

    python3 bench/budget_full_size.py SLUICE MODEL STREAM [BUDGET:TOKENS ...]

STREAM holds token ids (sluice-synth stream). Default: 512M:200 1G:200 2G:200 3G:200 6G:200 4G:2000."""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
from cgroup import Group  # noqa: E402

DEFAULT = ["512M:200", "1G:200", "2G:200", "3G:200", "6G:200", "4G:2000"]
COMPARED = 200  # tokens whose logits are compared


def bytes_of(budget):
    return int(budget[:-1]) << {"M": 20, "G": 30}[budget[-1]]


def hash_start(path, n_bytes, result):
    """Hash the first n_bytes that come out of a pipe; read the rest."""
    digest, total = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as pipe:
        while block := pipe.read(1 << 20):
            digest.update(block[:max(n_bytes - total, 0)])
            total += len(block)
    result.update(digest=digest.hexdigest(), total=total)


def run(sluice, model, ids, budget, row_bytes, folder):
    """The logits of ids inside a group of the budget. Returns what was seen."""
    pipe, tokens, seen = folder / "logits", folder / "ids.txt", {}
    tokens.write_text(" ".join(ids))
    os.mkfifo(pipe)
    reader = threading.Thread(target=hash_start, args=(pipe, COMPARED * row_bytes, seen))
    reader.start()
    begin = time.monotonic()
    with Group(bytes_of(budget)) as group:
        r = group.run([sluice, "logits", model, "--mem", budget, "--tokens", tokens, "--out", pipe, "--chunk", "1", "-q"],
                      stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seen.update(failures=group.failures(), peak=group.peak_bytes())
    if r.returncode:
        sys.exit(f"{budget}: exit {r.returncode}: {r.stderr}")
    reader.join()
    pipe.unlink()
    assert seen["total"] == len(ids) * row_bytes
    return {**seen, "seconds": time.monotonic() - begin}


def main():
    sluice, model, stream, *runs = sys.argv[1:]
    ids = pathlib.Path(stream).read_text().split()
    shown = subprocess.run([sluice, "show", model, "--json"], check=True, capture_output=True, text=True)
    row_bytes = 4 * json.loads(shown.stdout)["n_vocab"]
    digests, good = set(), True
    with tempfile.TemporaryDirectory() as folder:
        for budget, n_tokens in (r.split(":") for r in runs or DEFAULT):
            seen = run(sluice, model, ids[:int(n_tokens)], budget, row_bytes, pathlib.Path(folder))
            digests.add(seen["digest"])
            fits = seen["failures"] == {"failed": 0, "killed": 0} and (seen["peak"] or 0) <= bytes_of(budget)
            good = good and fits
            print(f"{budget:>5} {n_tokens:>5} tokens in {seen['seconds']:7.1f} s, peak {seen['peak']} of {bytes_of(budget)}, "
                  f"{seen['failures']}, logits {seen['digest'][:16]}", flush=True)
    print("same bits at every budget" if len(digests) == 1 else "THE LOGITS DIFFER")
    sys.exit(0 if good and len(digests) == 1 else 1)


if __name__ == "__main__":
    main()
