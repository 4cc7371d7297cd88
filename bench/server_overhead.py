#!/usr/bin/env python3
"""What the server costs an answer: tokens per second through the API beside those of `sluice run`, in turns, with the same
prompt, seed and budget. The promise is 0.97 of it on a model that takes 10 ms or more a token.

    bench/server_overhead.py build/sluice MODEL [--mem 1G] [--ctx 2048] [--tokens 200] [--runs 7]

`run` counts its own decode seconds; the server's are those that a client sees between the first and the last piece of a
streamed answer. A made-up model does (docs/synth.md), with --tokenizer; it should not end the answer early.
"""
import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time

PROMPT = "Tell me a story about a fox and an owl."


def by_run(args, seed):
    command = [args.sluice, "run", args.model, PROMPT, "--json", "-q", "--mem", args.mem, "--ctx", str(args.ctx),
               "--max-tokens", str(args.tokens), "--seed", str(seed)]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return len(answer["tokens"]), len(answer["tokens"]) / answer["seconds"]["decode"], answer["text"]


def by_server(args, port, seed):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "stream": True, "seed": seed,
            "max_tokens": args.tokens, "enable_thinking": False, "stream_options": {"include_usage": True}}
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    first, last, text, n = None, None, "", 0
    for line in c.getresponse():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        n = (event.get("usage") or {}).get("completion_tokens", n)
        for choice in event["choices"]:
            piece = choice["delta"].get("content")
            if piece:
                last = time.monotonic()
                first = first or last
                text += piece
    c.close()
    return n, (n - 1) / (last - first), text


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("sluice")
    p.add_argument("model")
    p.add_argument("--mem", default="1G")
    p.add_argument("--ctx", type=int, default=2048)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--runs", type=int, default=7)
    args = p.parse_args()
    server = subprocess.Popen([args.sluice, "serve", args.model, "--json", "-q", "--port", "0", "--name", "m", "--mem",
                               args.mem, "--ctx", str(args.ctx)], stdout=subprocess.PIPE)
    try:
        port = json.loads(server.stdout.readline())["port"]
        rows = []
        for seed in range(args.runs + 1):  # the first warms both
            if seed % 2:
                run, api = by_run(args, seed), by_server(args, port, seed)
            else:
                api, run = by_server(args, port, seed), by_run(args, seed)
            if run[2] != api[2] or run[0] != api[0]:
                sys.exit(f"seed {seed}: the answers differ, {run[0]} and {api[0]} tokens")
            if seed:
                rows.append((run[1], api[1]))
                print(f"seed {seed}: {run[0]} tokens, run {run[1]:.1f} tok/s, server {api[1]:.1f} tok/s", flush=True)
    finally:
        server.terminate()
        server.wait(30)
    run, api = (statistics.median(x) for x in zip(*rows))
    ratio = statistics.median(a / r for r, a in rows)
    print(f"median: run {run:.1f} tok/s ({1000 / run:.1f} ms a token), server {api:.1f} tok/s, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
