"""Small tokenizers in the shape of each family of models, trained by the `tokenizers` library.

    tokenizer_families.write(folder) -> {name: path of a tokenizer.json}

A family's file is what its checkpoints carry: normalizer, pre-tokenizer, post-processor, decoder and
the kinds of added tokens. The vocabulary is of a few thousand tokens, from this repository's own text.
"""
import json
import pathlib

import tokenizers
from tokenizers import models, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]

WHITE = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
FOLDED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = FOLDED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + WHITE
QWEN35 = FOLDED + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + WHITE
LLAMA3 = FOLDED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + WHITE
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{FOLDED}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{FOLDED}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + WHITE)
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + WHITE)
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" "\r\n" r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[""" "\r\n" r"""]*|\s*[""" "\r\n" r"""]+|\s+(?!\S)|\s+"""]

BOS_DEEPSEEK, EOS_DEEPSEEK = "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"


def byte_level(use_regex=False, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True,
            "use_regex": use_regex}


def splits(*patterns, after=None):
    steps = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
             for p in patterns]
    return {"type": "Sequence", "pretokenizers": steps + [after or byte_level()]}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


PREPEND = {"type": "Prepend", "prepend": "\u2581"}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
UNREPLACE = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
FALLBACK = [UNREPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
NFC = {"type": "NFC"}


def template(before=(), after=()):
    """TemplateProcessing of tokens by content; write() puts the ids in."""
    single = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before]
    single.append({"Sequence": {"id": "A", "type_id": 0}})
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": {t: {"id": t, "ids": None, "tokens": [t]} for t in (*before, *after)}}


CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]

# special: added tokens that are special, not normalized; others: (content, options).
FAMILIES = {
    "qwen2": dict(normalizer=NFC, pre=splits(QWEN2), special=CHATML, others=MARKERS),
    "qwen35": dict(normalizer=NFC, pre=splits(QWEN35), special=CHATML, others=MARKERS),
    "olmoe": dict(normalizer=NFC, pre=byte_level(use_regex=True), post=byte_level(),
                  special=["<|padding|>", "<|endoftext|>"],
                  others=[(" " * n, {"normalized": True}) for n in range(24, 1, -1)] +
                         [("|||EMAIL_ADDRESS|||", {"normalized": True})]),
    "deepseek_v3": dict(normalizer=sequence("normalizers"), pre=splits(*DEEPSEEK), post=byte_level(add_prefix_space=True),
                        special=[BOS_DEEPSEEK, EOS_DEEPSEEK, "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"],
                        others=["<think>", ("<\uff5ctool\u2581sep\uff5c>", {"normalized": True})]),
    "gpt_oss": dict(pre=splits(O200K), ignore_merges=True,
                    special=["<|startoftext|>", "<|return|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>"]),
    "glm4": dict(pre=splits(LLAMA3), post=sequence("processors", byte_level(), template(["[gMASK]", "<sop>"])),
                 special=["<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|assistant|>"],
                 others=["<think>", "</think>", "/nothink"]),
    "lfm2": dict(pre=splits(LLAMA3), ignore_merges=True,
                 post=sequence("processors", byte_level(), template(["<|startoftext|>"])),
                 special=["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                 others=[("<|tool_list_start|>", {"special": True, "rstrip": True})]),
    "tekken": dict(pre=splits(TEKKEN), ignore_merges=True, post=template(["<s>"], ["</s>"]),
                   special=["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]),
    "gpt2_prefix": dict(pre=byte_level(use_regex=True, add_prefix_space=True), special=["<|endoftext|>"],
                        others=["<tag>", ("<norm>", {"normalized": True}), ("[L]", {"lstrip": True, "normalized": True})]),
    "digits": dict(pre=sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)),
                   special=["<|endoftext|>"]),
    "digits_runs": dict(pre=sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                                     byte_level(use_regex=True)), special=["<|endoftext|>"]),
    "no_pattern": dict(pre=byte_level(), special=["<|endoftext|>"]),
    "mixtral": dict(normalizer=sequence("normalizers", PREPEND, REPLACE), chars=True, decoder=[*FALLBACK, STRIP],
                    post=template(["<s>"]), special=["<unk>", "<s>", "</s>"],
                    others=[("<norm>", {"normalized": True}), ("two words", {"normalized": True}),
                            ("zqword", {"normalized": True, "single_word": True}), ("[L]", {"lstrip": True}),
                            ("[R]", {"rstrip": True})]),
    "metaspace_first": dict(pre=metaspace("first", False), chars=True, decoder=[*FALLBACK, STRIP],
                            post=template(["<s>"]), special=["<unk>", "<s>", "</s>"],
                            others=[("<norm>", {"normalized": True}), ("[L]", {"lstrip": True})]),
    "metaspace_always": dict(pre=metaspace("always", True), chars=True, decoder=[*FALLBACK, STRIP],
                             normalizer=NFC, special=["<unk>", "<s>", "</s>"],
                             others=[("<norm>", {"normalized": True}), ("[L]", {"lstrip": True})]),
    "metaspace_never": dict(pre=metaspace("never", True), chars=True, decoder=FALLBACK, special=["<unk>", "<s>"]),
    "gemma": dict(normalizer=REPLACE, chars=True, decoder=FALLBACK, post=template(["<bos>"]),
                  pre={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                  special=["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
                  others=[("\n\n", {}), ("<table>", {})]),
    # Merges that put a space behind a letter: nothing may be cut before spaces.
    "mixtral_joined": dict(normalizer=sequence("normalizers", PREPEND, REPLACE), chars=True,
                           decoder=[*FALLBACK, STRIP], special=["<unk>", "<s>", "</s>"],
                           joined=True),
}


def corpus():
    files = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "src" / "text").glob("*.c"))]
    text = [f.read_text(encoding="utf-8") for f in files if f.stat().st_size < 100000]
    text.append("\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u4e2d\u6587\u6807\u70b9 \ud55c\uad6d\uc5b4 "
                "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 e\u0301 \u00e9t\u00e9 na\u00efve \U0001f600\U0001f44d " * 50)
    return text


def train(family):
    vocabulary = tokenizers.Tokenizer(models.BPE(byte_fallback=bool(family.get("chars"))))
    if family.get("chars"):
        lines = [l.replace(" ", "\u2581") for t in corpus() for l in t.splitlines(keepends=True)]
        if not family.get("joined"):   # words begin with their space, as SentencePiece has them
            vocabulary.pre_tokenizer = tokenizers.pre_tokenizers.Split("\u2581", "merged_with_next")
        trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False, max_token_length=16,
                                      limit_alphabet=150)
    else:
        lines = corpus()
        empty = json.dumps(document(family, {"vocab": {}, "merges": []}))
        vocabulary.pre_tokenizer = tokenizers.Tokenizer.from_str(empty).pre_tokenizer
        trainer = trainers.BpeTrainer(vocab_size=2500, show_progress=False,
                                      initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary.train_from_iterator(lines, trainer)
    return json.loads(vocabulary.to_str())["model"]


def document(family, model):
    chars = family.get("chars", False)
    vocab = dict(model["vocab"])
    if chars:
        names = [t for t in family["special"]] + ["<0x%02X>" % b for b in range(256)]
        names += [t for t in vocab if t not in names]
        vocab = {t: i for i, t in enumerate(names)}
    added = []
    for entry in [(t, {"special": True}) for t in family["special"]] + family.get("others", []):
        content, options = entry if isinstance(entry, tuple) else (entry, {})
        taken = max([*vocab.values(), *(t["id"] for t in added), -1])
        added.append({"id": vocab.get(content, taken + 1), "content": content, "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False, "special": False, **options})
    ids = {t["content"]: t["id"] for t in added}
    post = json.loads(json.dumps(family.get("post")))
    for part in (post or {}).get("processors", [post or {}]):
        for name, token in part.get("special_tokens", {}).items():
            token["ids"] = [ids[name]]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": family.get("normalizer"), "pre_tokenizer": family.get("pre"), "post_processor": post,
        "decoder": sequence("decoders", *family["decoder"]) if chars else byte_level(),
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>" if chars else None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": chars,
                  "byte_fallback": chars, "ignore_merges": family.get("ignore_merges", False),
                  "vocab": vocab, "merges": model["merges"]},
    }


def write(folder):
    paths = {}
    for name, family in FAMILIES.items():
        path = pathlib.Path(folder) / f"{name}.json"
        path.write_text(json.dumps(document(family, train(family)), ensure_ascii=False), encoding="utf-8")
        paths[name] = str(path)
    return paths
