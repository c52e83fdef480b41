#!/usr/bin/env python3
"""Writes core/unicode_tables.c: what Hugging Face's `tokenizers` knows about each code point.

    pip install --target DIR tokenizers && PYTHONPATH=DIR tests/make_unicode.py >core/unicode_tables.c

That package stands on several libraries whose Unicode versions differ (normalisation knows Unicode 9, its
categories are older, \\w is as new as the package), so it is asked, one property and one code point at a time.
What str.lower() looks at beside a final sigma is asked of Python, which sentence-transformers does it with.
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def removed(normalizer):
    return {c for c in ALL if normalizer.normalize_str(f"x{chr(c)}x") == "xx"}


def split_from(pre_tokenizer, around):
    whole = lambda c: around + chr(c) + around
    return {c for c in ALL if [p for p, _ in pre_tokenizer.pre_tokenize_str(whole(c))] != [whole(c)]}


def bert(**on):
    names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    return normalizers.BertNormalizer(**{n: on.get(n, False) for n in names})


def charsmap(starts):
    """A Precompiled normaliser that maps what begins with one of these bytes to Z: it shows graphemes, which
    are mapped as one."""
    unit = lambda label, offset, leaf: label | int(leaf) << 8 | offset << 10
    array = [0] * 0x400
    array[0] = unit(0, 0x100, False)
    for i, byte in enumerate(starts):
        array[0x100 ^ byte] = unit(byte, 0x100 ^ byte ^ (0x200 + i), True)
        array[0x200 + i] = 1 << 31
    blob = struct.pack("<I", 4 * len(array)) + b"".join(struct.pack("<I", u) for u in array) + b"Z\0"
    return normalizers.Precompiled(blob)


def normalisation():
    """Code points that decompose, have a combining class, or compose with what stands before."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    found = set(range(0x1160, 0x1200))  # vowels and finals compose to syllables
    for c in ALL:
        plain = nfd.normalize_str(chr(c))
        if plain != chr(c) or nfkd.normalize_str(chr(c)) != chr(c):
            found.add(c)
        if plain != chr(c):
            pair = unicodedata.decomposition(chr(c)).split()
            if len(pair) == 2 and not pair[0].startswith("<"):
                found.add(int(pair[1], 16))
        if unicodedata.combining(chr(c)) == 1 or nfd.normalize_str(f"x{chr(c)}\u0334") == f"x\u0334{chr(c)}":
            found.add(c)
    return found


def lower_case():
    lower = normalizers.Lowercase()
    return {c: low for c in ALL if (low := lower.normalize_str(chr(c))) != chr(c)}


def lower_runs(lower):
    """(first, count, step, delta): code points with the same distance to their lower case."""
    runs = []
    for c in sorted(lower):
        if len(lower[c]) != 1:
            assert c == 0x130 and lower[c] == "i\u0307"  # unicode.c knows it
            continue
        delta = ord(lower[c]) - c
        if runs:
            first, count, step, d = runs[-1]
            gap = c - (first + (count - 1) * step)
            if d == delta and gap <= 2 and (count == 1 or gap == step):
                runs[-1] = (first, count + 1, gap, d)
                continue
        runs.append((c, 1, 1, delta))
    return runs


def beside_sigma():
    """Code points that make a sigma behind them final, and those that do not stand between it and such a one."""
    final = lambda text: (text + "\u03a3").lower().endswith("\u03c2")
    cased = {c for c in ALL if final(chr(c))}
    return cased, {c for c in ALL if c not in cased and final("a" + chr(c))}


def main():
    extend = {c for c in ALL if c != 0x61 and charsmap_a.normalize_str("a" + chr(c)) == "Z"}
    prepend = {c for c in ALL if c >= 0x80 and charsmap_lead.normalize_str(chr(c) + "a") == "Z"}
    control = {c for c in range(0x80) if charsmap_ascii.normalize_str(chr(c) + "\u0301") != "Z"}
    control |= {c for c in ALL if 0x80 <= c < 0x10000 and charsmap_lead.normalize_str(chr(c) + "\u0301") == "ZZ"}
    lower = lower_case()
    letter = lambda name: split_from(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed"), ".")
    word = {c for c in ALL if len(pre_tokenizers_whitespace.pre_tokenize_str(f"x{chr(c)}x")) == 1}
    other = removed(bert(clean_text=True)) | {9, 10, 13}
    bits = [  # in the order of enum in unicode.h
        other,
        removed(bert(strip_accents=True)),
        removed(normalizers.StripAccents()),
        split_from(pre_tokenizers.Punctuation(), "a"),
        word,
        split_from(pre_tokenizers.Digits(), "a"),
        letter("L"),
        letter("N"),
        normalisation(),
        set(lower),
    ]
    grapheme = {c: 1 for c in extend} | {c: 2 for c in prepend} | {c: 3 for c in control}

    above = [1 << len(bits) + 2 + i for i in range(2)]  # behind the graphemes' two bits
    classes = [0] * 0x110000
    for i, members in enumerate(bits):
        for c in members:
            classes[c] |= 1 << i
    for c, g in grapheme.items():
        classes[c] |= g << len(bits)
    for bit, members in zip(above, beside_sigma()):
        for c in members:
            classes[c] |= bit

    runs = []
    for c in classes:
        if runs and runs[-1][1] == c and runs[-1][0] < (1 << 18) - 1:
            runs[-1][0] += 1
        else:
            runs.append([1, c])

    print(f"/* Made by tests/make_unicode.py from tokenizers {tokenizers.__version__}; sigmas from Unicode"
          f" {unicodedata.unidata_version}. */")
    print('#include "core/unicode_tables.h"\n\n/* clang-format off */')
    print("const uint32_t attn_unicode_runs[] = {")
    table(f"{n << 14 | c:#x}" for n, c in runs)
    print("};\nconst size_t attn_unicode_run_count = sizeof attn_unicode_runs / sizeof attn_unicode_runs[0];\n")
    print("const attn_lower_run attn_lower_runs[] = {")
    table(f"{{{f:#x},{n},{s},{d}}}" for f, n, s, d in lower_runs(lower))
    print("};\nconst size_t attn_lower_run_count = sizeof attn_lower_runs / sizeof attn_lower_runs[0];")


def table(items):
    line = "    "
    for item in items:
        if len(line) + len(item) > 108:
            print(line.rstrip())
            line = "    "
        line += item + ","
    print(line)


charsmap_a = charsmap([0x61])
charsmap_lead = charsmap(range(0xC2, 0xF5))
charsmap_ascii = charsmap(range(1, 0x80))
pre_tokenizers_whitespace = pre_tokenizers.Whitespace()

if __name__ == "__main__":
    sys.exit(main())
