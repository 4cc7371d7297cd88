#!/usr/bin/env python3
"""Writes src/text/unicode_tables.c from pinned Unicode data.

    pip install unicodedata2==16.0.0 regex==2024.11.6
    tools/gen_unicode.py > src/text/unicode_tables.c

Two versions of Unicode are wanted, because the reference tokenizer has two: its regular expressions
know Unicode 16, its normalizer knows Unicode 9. Normalization of an assigned character never changes,
so Unicode 9 is Unicode 16 without the characters that came later; AFTER_9 lists those of them that
decompose or have a combining class. tests/diff/test_tokenizer_hf.py holds the result to the
reference over every code point.
"""
import sys

import regex
import unicodedata2 as ucd

assert ucd.unidata_version == "16.0.0" and regex.__version__ == "2.5.148"

LIMIT = 0x110000
SURROGATES = range(0xD800, 0xE000)
WHITE_SPACE = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
               *range(0x09, 0x0E), *range(0x2000, 0x200B)}
AFTER_9 = [
    (0x07FD, 0x07FD), (0x0897, 0x089F), (0x08CA, 0x08D3), (0x09FE, 0x09FE), (0x0C3C, 0x0C3C),
    (0x0D3B, 0x0D3C), (0x0EBA, 0x0EBA), (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA),
    (0xA82C, 0xA82C), (0x105C9, 0x105C9), (0x105E4, 0x105E4), (0x10D24, 0x10D27),
    (0x10D69, 0x10D6D), (0x10EAB, 0x10EAC), (0x10EFD, 0x10EFF), (0x10F46, 0x10F50),
    (0x10F82, 0x10F85), (0x11070, 0x11070), (0x1133B, 0x1133B), (0x11383, 0x11383),
    (0x11385, 0x11385), (0x1138E, 0x1138E), (0x11391, 0x11391), (0x113C5, 0x113C5),
    (0x113C7, 0x113C8), (0x113CE, 0x113D0), (0x1145E, 0x1145E), (0x11839, 0x1183A),
    (0x11938, 0x11938), (0x1193D, 0x1193E), (0x11943, 0x11943), (0x119E0, 0x119E0),
    (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D42),
    (0x11D44, 0x11D45), (0x11D97, 0x11D97), (0x11F41, 0x11F42), (0x16121, 0x16128),
    (0x1612F, 0x1612F), (0x16D68, 0x16D6A), (0x16FF0, 0x16FF1), (0x1E08F, 0x1E08F),
    (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF),
    (0x1E5EE, 0x1E5EF),
]
LATER = {c for first, last in AFTER_9 for c in range(first, last + 1)}
HANGUL = range(0xAC00, 0xAC00 + 11172)  # by arithmetic, in unicode.c

# The numbers of unicode.h: categories, and WORD beside them.
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Cs Co Cn").split()
WHITE_CONTROL, WORD_BIT = len(CATEGORIES), 32
BOUNDARY, CHANGES = 0x100, 0x200


def class_of(c):
    if c in SURROGATES:
        return CATEGORIES.index("Cs")
    ch = chr(c)
    category = ucd.category(ch)
    number = CATEGORIES.index(category)
    if c in WHITE_SPACE and category == "Cc":
        number = WHITE_CONTROL
    else:
        assert (c in WHITE_SPACE) == (category[0] == "Z")
    if (category[0] == "M" or category in ("Nd", "Pc") or c in (0x200C, 0x200D)
            or regex.match(r"\p{Alphabetic}", ch)):
        number |= WORD_BIT
    return number


def canonical(c):
    """The one-step canonical decomposition, or []."""
    text = "" if c in LATER or c in SURROGATES else ucd.decomposition(chr(c))
    return [int(x, 16) for x in text.split()] if text and text[0] != "<" else []


def combining(c):
    return 0 if c in LATER or c in SURROGATES else ucd.combining(chr(c))


def decompose(c):
    step = canonical(c)
    return [x for part in step for x in decompose(part)] if step else [c]


def split(values, element_bytes):
    """Two stages: block numbers, and the distinct blocks. Returns (shift, index, blocks)."""
    best = None
    for shift in range(5, 10):
        index, blocks, seen = [], [], {}
        for at in range(0, LIMIT, 1 << shift):
            block = tuple(values[at:at + (1 << shift)])
            if block not in seen:
                seen[block] = len(seen)
                blocks.extend(block)
            index.append(seen[block])
        size = len(index) * (1 if len(seen) <= 256 else 2) + len(blocks) * element_bytes
        if best is None or size < best[0]:
            best = (size, shift, index, blocks)
    return best[1:]


def emit(name, ctype, values, form="%d"):
    print(f"const {ctype} {name}[{len(values)}] = {{")
    line = "   "
    for v in values:
        item = f" {form % v},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


def main():
    classes = [class_of(c) for c in range(LIMIT)]
    pairs = []
    for c in range(LIMIT):
        step = canonical(c)
        if len(step) == 2 and ucd.normalize("NFC", chr(c)) == chr(c):
            pairs.append((step[0], step[1], c))
    pairs.sort()
    second = {p[1] for p in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))

    pool, records, record_of, values = [], [BOUNDARY], {BOUNDARY: 0}, []
    for c in range(LIMIT):
        full = [c] if c in HANGUL else decompose(c)
        record = combining(c)
        if combining(full[0]) == 0 and full[0] not in second:
            record |= BOUNDARY
        if full != [c]:
            if ucd.normalize("NFC", chr(c)) != chr(c):
                record |= CHANGES
            record |= len(full) << 12 | len(pool) << 16
            pool.extend(full)
            assert len(full) <= 4 and len(pool) < 1 << 16
        if record not in record_of:
            record_of[record] = len(records)
            records.append(record)
        values.append(record_of[record])

    class_shift, class_index, class_blocks = split(classes, 1)
    nfc_shift, nfc_index, nfc_blocks = split(values, 2)
    print("/* Generated by tools/gen_unicode.py: categories of Unicode 16, normalization of Unicode 9.\n"
          " * unicode_tables.h says what the numbers mean. */")
    print('#include "text/unicode_tables.h"\n')
    print("// clang-format off")
    print(f"_Static_assert(SL_UNI_CLASS_SHIFT == {class_shift} && SL_UNI_NFC_SHIFT == {nfc_shift},\n"
          '               "unicode_tables.h does not fit");\n')
    emit("sl__uni_class_index", "uint8_t", class_index)
    emit("sl__uni_class", "uint8_t", class_blocks)
    emit("sl__uni_nfc_index", "uint8_t", nfc_index)
    emit("sl__uni_nfc", "uint16_t", nfc_blocks)
    emit("sl__uni_nfc_record", "uint32_t", records, "0x%x")
    emit("sl__uni_decomposed", "uint32_t", pool, "0x%x")
    print(f"const uint32_t sl__uni_n_pairs = {len(pairs)};\n")
    print(f"const uint32_t sl__uni_pair[{len(pairs)}][3] = {{")
    for p in pairs:
        print("    {0x%x, 0x%x, 0x%x}," % p)
    print("};")
    print("// clang-format on")
    sys.stderr.write("classes %d + %d bytes, nfc %d + %d, %d records, pool %d, %d pairs\n" % (
        len(class_index), len(class_blocks), len(nfc_index), 2 * len(nfc_blocks), len(records),
        len(pool), len(pairs)))


main()
