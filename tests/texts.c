#include "tests/texts.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/unicode.h"

static const char *const plain[] = {
    "the quick brown fox jumps over the lazy dog and the cat sat on the mat in the old town",
    "attention is all you need they said but memory bandwidth is what you pay for every token",
    "she doesn't know why it's so they've got to go we'll see I'm sure you'd",
    "in 1984 there were 1,234 books for $19.99 each on www.example.com/path?query=1&x=2",
    "mail me@example.org for (int i = 0; i < n; i++) { x[i] += y[i] * 2.5e-3f; } // a comment",
    "el niño comió jalapeños en el café mañana über straße größe naïve façade Œuvre Ærø Ångström",
    "[CLS] [SEP] [MASK] [UNK] [PAD] <s> </s> <mask> <unk> [mask] <0x41> ##ing |||IP_ADDRESS|||",
    ("lazily lazily- xlazily Éclair e\u0301clair ÉCLAIR éclairs <|begin_of_text|> tokenized "
     "<|padding|>"),
};
static const char *const scripts[] = {
    "привет мир как дела сегодня хорошая погода ёж",
    "γειά σου κόσμε ΣΊΣΥΦΟΣ ὀδυσσεύς ΑΣ ΟΔΟΣ ς",
    "你好世界我们今天去学校看书 北京",
    "こんにちは世界 テストをします ｶﾀｶﾅ",
    "안녕하세요 세계 한국어 문장입니다",
    "مرحبا بالعالم كيف حالك اليوم",
    "שלום עולם מה שלומך",
    "नमस्ते दुनिया हिन्दी क्षत्रिय",
    "สวัสดีชาวโลก วันนี้อากาศดี",
    "বাংলা ভাষা தமிழ் மொழி ქართული հայերեն አማርኛ ខ្មែរ",
    "Việt Nam tiếng Việt có dấu",
    "İstanbul ıssız IĞDIR ŞİŞLİ",
    "ﬁnd ﬂow ﬃ ① ² ½ Ⅷ ㎏ ｆｕｌｌ　ｗｉｄｔｈ ℌ ﷺ",
    "👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ☕️ 🏳️‍🌈 🫠🥹",
    "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛 𐍈𐌰𐌹 𒀀𒁀 𓀀𓂀 🀄",
    "١٢٣ ۴۵۶ १२३ ৪৫ ௧௨ ๑๒ ０１２ 𑁦𑁧",
    "a\u0301e\u0308o\u0302\u0301n\u0303 \u1100\u1161\u11a8 \u1112\u1161\u11ab \uac00\u11a8",
    "Z\u0351\u036b\u0343\u0334\u0319\u0324A\u0334\u0335\u0330\u0314L\u0360\u0322G\u0334\u033b",
};
static const char *const ends[] = {"'s", "'S", "'t", "'LL", "'ve", "'d", "'ſ", "’s", "'",
                                   "!",  "?.", ",",  ";",   "…",   "—",  "“",  "»",  "。",
                                   "！", "「", "_",  "#",   "$",   "`",  "\\", "|",  "~",
                                   "^",  "+=", "<",  "@",   "%",   "((", "}",  "¿",  "､"};
static const uint32_t blanks[] = {' ',    '\t',   '\n',   '\r',   '\v',   '\f',   0x1c,   0x85,
                                  0xa0,   0x1680, 0x180e, 0x2000, 0x2003, 0x2009, 0x200b, 0x2028,
                                  0x2029, 0x202f, 0x205f, 0x2060, 0x3000, 0xfeff};
static const uint32_t odd[] = {0,       1,      7,      0x1b,   0x7f,    0x80,    0x9f,
                               0xad,    0x378,  0x200c, 0x200d, 0x200e,  0x202e,  0x2066,
                               0xe000,  0xf8ff, 0xfffd, 0xfffe, 0xffff,  0x600,   0x6dd,
                               0x110bd, 0x2581, 0x120,  0x10a,  0xe0001, 0x10ffff};
static const char *const fixed[] = {
    "",     " ",    "\n",      "a",    "\u0301",    "\r\n\u0301", "'",      "''s",
    "x   ", "   x", "\u0600a", "\r\n", " \n \n  x", "1234567",    "\u3099", "か\u3099",
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

typedef struct {
    uint64_t state; /* splitmix64 */
    char *out;
    size_t n;
} maker;

static size_t below(maker *m, size_t n)
{
    uint64_t z = m->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (size_t)((z ^ z >> 31) % n);
}

static void put_bytes(maker *m, const char *s, size_t n)
{
    if (n > TEXT_BYTES - m->n)
        return;
    memcpy(m->out + m->n, s, n);
    m->n += n;
}

static void put_text(maker *m, const char *s)
{
    put_bytes(m, s, strlen(s));
}

static void put(maker *m, uint32_t c)
{
    char s[ATTN_UTF8_MAX];
    if (c < 0xd800 || c > 0xdfff)
        put_bytes(m, s, attn_utf8_put(s, c));
}

static void put_row(maker *m, size_t row, bool apart)
{
    for (uint32_t c = 0; c < 64; c++) {
        put(m, (uint32_t)row * 64 + c);
        if (apart)
            put(m, ' ');
    }
}

/* A word of the list, from a random place on. */
static void put_words(maker *m, const char *const *list, size_t lists)
{
    const char *s = list[below(m, lists)];
    size_t n = strlen(s), at = below(m, n), end;

    while (at > 0 && s[at - 1] != ' ')
        at--;
    for (end = at + 1 + below(m, 40); end < n && s[end] != ' ';)
        end++;
    put_bytes(m, s + at, (end < n ? end : n) - at);
}

static void put_random(maker *m)
{
    bool near = below(m, 2);
    uint32_t start = (uint32_t)below(m, near ? 0x3100 : 0x30000);

    for (size_t n = 1 + below(m, 10); n > 0; n--)
        put(m, near ? start + (uint32_t)below(m, 64) : (uint32_t)below(m, 0x110000));
}

static void upset(maker *m, size_t from)
{
    char word[256];
    size_t n = m->n - from;

    switch (below(m, 12)) {
    case 0:
        for (size_t i = from; i < m->n; i++) {
            if (m->out[i] >= 'a' && m->out[i] <= 'z')
                m->out[i] = (char)(m->out[i] - 'a' + 'A');
        }
        break;
    case 1:
        put(m, blanks[below(m, COUNT(blanks))]);
        break;
    case 2:
        put(m, odd[below(m, COUNT(odd))]);
        break;
    case 3:
        for (n = 1 + below(m, 3); n > 0; n--)
            put(m, 0x300 + (uint32_t)below(m, 0x70));
        break;
    case 4:
        for (n = below(m, 11); n > 0; n--)
            put(m, '0' + (uint32_t)below(m, 10));
        break;
    case 5:
    case 6:
        put_text(m, ends[below(m, COUNT(ends))]);
        break;
    case 7:
        if (n == 0 || n > 20 || below(m, 4) != 0)
            break;
        memcpy(word, m->out + from, n);
        for (size_t more = below(m, 120); more > 0; more--)
            put_bytes(m, word, n);
        break;
    default:
        break;
    }
}

size_t text_make(size_t i, char out[TEXT_BYTES])
{
    enum { ROWS = 0x32000 / 64, APART = 0x20000 / 64 };
    maker m = {.state = i * 977 + 20261130, .out = out};

    if (i < COUNT(fixed))
        put_text(&m, fixed[i]);
    else if ((i -= COUNT(fixed)) < ROWS)
        put_row(&m, i, false);
    else if ((i -= ROWS) < APART)
        put_row(&m, i, true);
    else {
        for (size_t parts = 1 + below(&m, 14); parts > 0; parts--) {
            size_t from = m.n, kind = below(&m, 10);
            if (kind < 5)
                put_words(&m, plain, COUNT(plain));
            else if (kind < 8)
                put_words(&m, scripts, COUNT(scripts));
            else
                put_random(&m);
            upset(&m, from);
            if (below(&m, 20) != 0)
                put(&m, below(&m, 16) == 0 ? blanks[below(&m, COUNT(blanks))] : ' ');
            for (size_t more = below(&m, 40) == 0 ? below(&m, 30) : 0; more > 0; more--)
                put(&m, ' ');
        }
    }
    return m.n;
}

size_t text_cut(const char *s, size_t n, size_t most)
{
    if (n <= most)
        return n;
    while (most > 0 && ((unsigned char)s[most] & 0xc0) == 0x80)
        most--;
    return most;
}
