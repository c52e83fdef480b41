#!/usr/bin/env python3
"""Tokenisers for the tests, and what Hugging Face's `tokenizers` makes of texts.

    PYTHONPATH=DIR make_tokenizers.py write FOLDER             the small tokenisers, trained on text made here
    PYTHONPATH=DIR make_tokenizers.py lines N FILE CHARACTERS  N varied texts, cut: u32 length, UTF-8
    PYTHONPATH=DIR make_tokenizers.py encode FOLDER FILE MAX single|pair   their ids, one line a text

What is written has the parts that the files of bert-base-uncased, bert-base-cased, roberta-base,
ModernBERT-base, xlm-roberta-base and others have, with vocabularies of some hundred tokens. An id is written as
id:type:special; 0 or 1 at the end of a line says whether it was cut.
"""
import json
import os
import random
import struct
import sys

# --- texts -----------------------------------------------------------------------------------------------

PLAIN = """the quick brown fox jumps over the lazy dog and the cat sat on the mat while it rained in the old town
attention is all you need they said but memory bandwidth is what you pay for every single token of the batch
she sells sea shells by the sea shore and he doesn't know why it's so they've got to go we'll see I'm sure you'd
in 1984 there were 1,234 books for $19.99 each on www.example.com/path?query=1&x=2 or mail me@example.org
for (int i = 0; i < n; i++) { x[i] += y[i] * 2.5e-3f; } // a comment
def f(a, b=None): return {k: v for k, v in zip(a, b)}
el niño comió jalapeños en el café mañana über straße größe naïve façade Œuvre Ærø Ångström
""".split("\n")
SCRIPTS = [
    "привет мир как дела сегодня хорошая погода ёж", "γειά σου κόσμε τι κάνεις ΣΊΣΥΦΟΣ ὀδυσσεύς",
    "你好世界我们今天去学校看书", "こんにちは世界テストをしますカタカナ", "안녕하세요 세계 한국어 문장입니다",
    "مرحبا بالعالم كيف حالك اليوم", "שלום עולם מה שלומך", "नमस्ते दुनिया क्या हाल है हिन्दी",
    "สวัสดีชาวโลกวันนี้อากาศดี", "বাংলা ভাষা", "தமிழ் மொழி", "ქართული ენა", "հայերեն լեզու", "አማርኛ ቋንቋ", "ខ្មែរ",
    "Việt Nam tiếng Việt có dấu", "İstanbul ıssız IĞDIR ŞİŞLİ", "ΑΣ ΟΔΟΣ ς σ", "ﬁnd ﬂow ﬃ ① ² ½ Ⅷ ㎏ ｆｕｌｌ　ｗｉｄｔｈ",
    "👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ☕️ 🏳️‍🌈 🫠🥹", "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛 𐍈𐌰𐌹 𒀀𒁀 𓀀𓂀 🀄", "١٢٣ ۴۵۶ १२३ ৪৫ ௧௨ ๑๒ ０１２ 𑁦𑁧",
    "a\u0301e\u0308o\u0302\u0301n\u0303 \u1100\u1161\u11a8 \u1112\u1161\u11ab", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘",
]
SPACES = " \t\n\r\v\f\x1c\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
ODD = "\0\x01\x07\x1b\x7f\x80\x9f\xad\u0378\u200c\u200d\u200e\u202e\u2066\ue000\uf8ff\ufffd\ufffe\uffff\U000e0001" \
      "\U000f0000\U0010ffff\u0600\u06dd\u110bd\u2581\u0120\u010a"
SPECIAL = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<s>", "</s>", "<mask>", "<unk>", "<|endoftext|>", "[mask]",
           "<0x41>", "##ing", "lazily", "lazily-", "e\u0301clair", " éclair\t", "Éclair", "|||IP_ADDRESS|||"]


def words(r):
    kind = r.randrange(10)
    if kind < 4:
        return r.choice(PLAIN).split(" ")
    if kind < 7:
        return r.choice(SCRIPTS).split(" ")
    if kind == 7:
        return ["".join(chr(c) for c in (r.randrange(0x110000) for _ in range(r.randrange(1, 9)))
                        if not 0xD800 <= c < 0xE000)]
    if kind == 8:
        start = r.randrange(0, 0x30000 if r.random() < 0.2 else 0x3100, 32)
        return ["".join(chr(c) for c in (start + r.randrange(64) for _ in range(r.randrange(1, 12)))
                        if not 0xD800 <= c < 0xE000)]
    return [r.choice(SPECIAL)]


def text(r):
    parts = []
    for _ in range(r.randrange(1, 7)):
        some = words(r)
        at = r.randrange(len(some))
        for word in some[at:at + r.randrange(1, 9)]:
            change = r.randrange(24)
            if change == 0:
                word = word.upper()
            elif change == 1:
                word = word.capitalize()
            elif change == 2:
                word += r.choice(SPACES) * r.randrange(1, 4)
            elif change == 3:
                word += r.choice(ODD) + word
            elif change == 4:
                word += "".join(chr(r.randrange(0x300, 0x370)) for _ in range(r.randrange(1, 4)))
            elif change == 5:
                word += str(r.randrange(10 ** r.randrange(1, 12)))
            elif change == 6:
                word += r.choice("!?.,;:'\"()[]{}<>@#$%^&*-_=+/\\|~`…—“”«»¿¡、。！「」") * r.randrange(1, 3)
            elif change == 7 and r.random() < 0.3:
                word *= r.choice((2, 20, 60, 110))
            elif change == 8:
                word += r.choice(("'s", "'S", "'t", "'LL", "'ve", "'d", "'ſ", "’s", "'"))
            parts.append(word)
            parts.append(r.choice(SPACES) if r.random() < 0.06 else "" if r.random() < 0.04 else " ")
            if r.random() < 0.03:
                parts.append(" " * r.randrange(1, 30))
    whole = "".join(parts)
    return whole if r.random() < 0.5 else whole.strip(" ")


def texts(n, seed=20261130):
    r = random.Random(seed)
    fixed = ["", " ", "\n", "a", "\u0301", "\r\n\u0301", "'", "''s", "   x", "x   ", "\u0600a", "a\u0300" * 40, "É" * 101]
    everything = ["".join(map(chr, range(c, c + 64))) for c in range(0, 0x32000, 64) if not 0xD800 <= c < 0xE000]
    everything += [" ".join(map(chr, range(c, c + 64))) for c in range(0, 0x20000, 64) if not 0xD800 <= c < 0xE000]
    lines = fixed + everything
    while len(lines) < n:
        lines.append(text(r))
    r.shuffle(lines)
    return lines


# --- tokenisers ------------------------------------------------------------------------------------------

def added(content, i, **how):
    token = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    token.update(how)
    return token


def corpus():
    r = random.Random(7)
    return [" ".join(PLAIN)] * 40 + SCRIPTS * 6 + [" ".join(r.sample(" ".join(PLAIN).split(), 40)) for _ in range(60)]


def train(normalizer, pre_tokenizer, trainer, model):
    from tokenizers import Tokenizer
    t = Tokenizer(model)
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(corpus(), trainer)
    return json.loads(t.to_str())


def tidy(t):
    """Small enough to be kept: what does not matter here is left out."""
    t.update(truncation=None, padding=None, decoder=None)
    return t


def wordpiece(lower):
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = train(normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer(),
              trainers.WordPieceTrainer(vocab_size=1100, special_tokens=specials, show_progress=False),
              models.WordPiece(unk_token="[UNK]"))
    cls, sep = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, lambda k: {"SpecialToken": {"id": "[SEP]", "type_id": k}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    t["post_processor"] = {"type": "TemplateProcessing", "single": [cls, a, sep(0)], "pair": [cls, a, sep(0), b, sep(1)],
                           "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in (("[CLS]", 2), ("[SEP]", 3))}}
    if not lower:  # other forms of the same parts
        t["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
        n = len(t["model"]["vocab"])
        t["added_tokens"] += [added("lazily", n, special=False, single_word=True),
                              added("Éclair", n + 1, special=False, normalized=True, lstrip=True, rstrip=True)]
    return tidy(t)


def byte_level(size, prefix):
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    t = train(None if prefix is not None else normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=bool(prefix)),
              trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                  special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if prefix is not None
                                  else ["|||IP_ADDRESS|||", "<|padding|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), models.BPE())
    return t


def roberta(prefix):
    t = byte_level(900, prefix)
    t["model"]["merges"] = [" ".join(m) for m in t["model"]["merges"]]  # the older spelling
    t["added_tokens"] = [added(c, i) for i, c in enumerate(("<s>", "<pad>", "</s>", "<unk>"))] + \
        [added("<mask>", 4, lstrip=True)]
    t["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                           "add_prefix_space": prefix}
    return tidy(t)


def modernbert():
    t = byte_level(900, None)
    n = len(t["model"]["vocab"])
    spaces = [added(" " * k, n + i, special=False, normalized=True) for i, k in enumerate(range(24, 1, -1))]
    n += len(spaces)
    names = ["|||EMAIL_ADDRESS|||", "|||PHONE_NUMBER|||", "<|endofprompt|>"]
    more = [added(c, n + i, special=False, normalized=True) for i, c in enumerate(names)]
    n += len(names)
    special = [added(c, n + i, lstrip=c == "[MASK]") for i, c in enumerate(("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"))]
    t["added_tokens"] = [added("|||IP_ADDRESS|||", 0, special=False, normalized=True), added("<|padding|>", 1)] + \
        spaces + more + special
    cls, sep = n + 1, n + 2
    one = lambda c, k=0: {"SpecialToken": {"id": c, "type_id": k}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
    t["post_processor"] = {"type": "TemplateProcessing", "single": [one("[CLS]"), a, one("[SEP]")],
                           "pair": [one("[CLS]"), a, one("[SEP]"), b, one("[SEP]")],
                           "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in (("[CLS]", cls), ("[SEP]", sep))}}
    return tidy(t)


CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cl100k():
    """Llama 3's, which EuroBERT has: a pattern of its own, merges ignored for whole words, two post-processors."""
    from tokenizers import Regex, models, pre_tokenizers, trainers
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CL100K), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = train(None, split, trainers.BpeTrainer(vocab_size=800, show_progress=False,
                                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), models.BPE())
    n = len(t["model"]["vocab"])
    t["model"]["vocab"]["Ġtokenized"] = n
    t["model"]["ignore_merges"] = True
    t["added_tokens"] = [added("<|begin_of_text|>", n + 1), added("<|end_of_text|>", n + 2)]
    begin, a = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    begin1, b = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}
    template = {"type": "TemplateProcessing", "single": [begin, a], "pair": [begin, a, begin1, b],
                "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [n + 1], "tokens": ["<|begin_of_text|>"]}}}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    t["post_processor"] = {"type": "Sequence", "processors": [level, template]}
    return tidy(t)


def charsmap():
    """A charsmap as SentencePiece compiles it, of some of NFKC's rules: darts' double array, then the strings."""
    rules = {c: " " for c in "\t\n\r\xa0\u2003\u3000\u200b\ufeff"}
    rules.update({c: "" for c in "\x01\x02\x7f\u200e\xad"})
    for c in list(range(0xa8, 0x100)) + [0x132, 0x133, 0x149, 0x17f, 0xfb01, 0xfb02, 0xfb03] + list(range(0xff01, 0xff5f)) + \
            list(range(0x2460, 0x2480)) + list(range(0xf900, 0xf920)) + list(range(0x958, 0x960)):
        import unicodedata
        to = unicodedata.normalize("NFKC", chr(c))
        if to != chr(c):
            rules[chr(c)] = to
    rules.update({"e\u0301": "é", "a\u0308": "ä", "か\u3099": "が", "\r\n": " "})
    strings, place = b"", {}
    for to in sorted(set(rules.values())):
        place[to] = len(strings)
        strings += to.encode() + b"\0"
    tree = {}
    for key, to in rules.items():
        at = tree
        for byte in key.encode():
            at = at.setdefault(byte, {})
        at[None] = place[to]
    units, used = [0], {0}
    def lay(node, at):
        labels = [0 if k is None else k for k in sorted(node, key=lambda k: -1 if k is None else k)]
        base = 1
        while any((at ^ base ^ l) in used or at ^ base ^ l == 0 for l in labels):
            base += 1
        assert base < 1 << 21
        spots = {l: at ^ base ^ l for l in labels}
        used.update(spots.values())
        units.extend([0] * (max(spots.values()) + 1 - len(units)))
        units[at] = (units[at] & 0x1FF) | int(None in node) << 8 | base << 10
        for key, child in node.items():
            spot = spots[0 if key is None else key]
            if key is None:
                units[spot] = child | 1 << 31
            else:
                units[spot] = key
                lay(child, spot)
    lay(tree, 0)
    units.extend([0] * (256 - len(units) % 256))
    return struct.pack("<I", 4 * len(units)) + b"".join(struct.pack("<I", u) for u in units) + strings


def unigram(kind):
    from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
    first = kind == "first"
    normal = normalizers.Precompiled(charsmap()) if not first else normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]) if not first else \
        pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    if first:
        specials += [f"<0x{b:02X}>" for b in range(256)]
    t = train(normal, split, trainers.UnigramTrainer(vocab_size=900, special_tokens=specials, unk_token="<unk>",
                                                      show_progress=False), models.Unigram())
    vocab = t["model"]["vocab"]
    vocab.append(["<mask>", 0.0])
    for entry in vocab:
        entry[1] = round(entry[1], 5)
    t["model"].update(unk_id=3, byte_fallback=first)
    t["added_tokens"] = [added(c, i) for i, c in enumerate(specials[:4])] + [added("<mask>", len(vocab) - 1, lstrip=True)]
    one = lambda c: {"SpecialToken": {"id": c, "type_id": 0}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
    t["post_processor"] = {"type": "TemplateProcessing", "single": [one("<s>"), a, one("</s>")],
                           "pair": [one("<s>"), a, one("</s>"), one("</s>"), b, one("</s>")],
                           "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in (("<s>", 0), ("</s>", 2))}}
    if first:
        t["post_processor"] = None
    return tidy(t)


def plain_bpe():
    """Characters, bytes for those that are unknown, digits apart; as Llama 2's."""
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = train(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
              pre_tokenizers.Sequence([pre_tokenizers.Split("▁", "merged_with_next"), pre_tokenizers.Punctuation("contiguous"),
                                       pre_tokenizers.Digits(individual_digits=True)]),
              trainers.BpeTrainer(vocab_size=900, special_tokens=specials, show_progress=False), models.BPE(unk_token="<unk>"))
    t["model"].update(byte_fallback=True, fuse_unk=True)
    t["added_tokens"] = [added(c, i, normalized=True) for i, c in enumerate(specials[:3])]
    return tidy(t)


def whitespace():
    """Words of \\w, and an unknown token that is not joined."""
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    t = train(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip()]), pre_tokenizers.Whitespace(),
              trainers.BpeTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False), models.BPE(unk_token="[UNK]"))
    return tidy(t)


KINDS = {"bert-uncased": lambda: wordpiece(True), "bert-cased": lambda: wordpiece(False), "roberta": lambda: roberta(False),
         "roberta-prefix": lambda: roberta(True), "modernbert": modernbert, "cl100k": cl100k,
         "xlm-roberta": lambda: unigram("xlm"), "unigram-first": lambda: unigram("first"), "bpe-bytes": plain_bpe,
         "bpe-words": whitespace}


def write(folder):
    for name, make in KINDS.items():
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        with open(f"{folder}/{name}/tokenizer.json", "w", encoding="utf-8") as f:
            json.dump(make(), f, ensure_ascii=False, separators=(",", ":"))


# --- what they give --------------------------------------------------------------------------------------

def read(path):
    with open(path, "rb") as f:
        blob = f.read()
    at, out = 0, []
    while at < len(blob):
        n = struct.unpack_from("<I", blob, at)[0]
        out.append(blob[at + 4:at + 4 + n].decode())
        at += 4 + n
    return out


def encode(folder, path, most, pairs):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(f"{folder}/tokenizer.json")
    t.no_padding()
    t.no_truncation()
    if most:
        t.enable_truncation(most)
    lines = read(path)
    items = list(zip(lines[::2], lines[1::2])) if pairs else lines
    for at in range(0, len(items), 100):  # what is cut off is kept, n * m times for a pair: not all at once
        for e in t.encode_batch(items[at:at + 100]):
            ids = "".join(f"{i}:{k}:{s} " for i, k, s in zip(e.ids, e.type_ids, e.special_tokens_mask))
            sys.stdout.write(f"{ids}{int(len(e.overflowing) > 0)}\n")


def main(verb, *rest):
    if verb == "write":
        write(rest[0])
    elif verb == "lines":
        with open(rest[1], "wb") as f:
            for line in texts(int(rest[0])):
                blob = line[:int(rest[2])].encode()
                f.write(struct.pack("<I", len(blob)) + blob)
    elif verb == "encode":
        encode(rest[0], rest[1], int(rest[2]), rest[3] == "pair")


if __name__ == "__main__":
    main(*sys.argv[1:])
