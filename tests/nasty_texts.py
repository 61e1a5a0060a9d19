"""Texts on which tokenizers disagree: fixed ones, and random ones of the same kinds of characters."""

import random
from functools import cache

WORDS = (
    "the old king and a naïve café don't we've I'LL they'd DON'T straße ﬁne İstanbul ıI ΟΔΥΣΣΕΥΣ New York ſ'ſ".split()
)
SPELLED = (
    "[MASK] [SEP] [UNK] <|endoftext|> <|im_end|> </s> <s> <unk> <pad> <0x0A> ▁ ## ##s Ġ Ċ </w> [GAP] Paris".split()
)
SPACES = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\r",
    "\n\n",
    "\x0b",
    "\x0c",
    "\x85",
    "\xa0",
    "\u1680",
    "\u2003",
    "\u2028",
    "\u2029",
]
SPACES += ["\u202f", "\u205f", "\u3000", "\ufeff", "\u200b", "\u180e", "   ", " \n ", "\u2060"]
CONTROLS = [
    "\0",
    "\x01",
    "\x1b",
    "\x7f",
    "\x9f",
    "\xad",
    "\u200c",
    "\u200d",
    "\u202e",
    "\ufffd",
    "\ufffe",
    "\U000e0001",
    "\ue000",
]
MARKS = [
    chr(c) for c in (0x300, 0x301, 0x308, 0x316, 0x323, 0x327, 0x328, 0x334, 0x338, 0x344, 0x345, 0x34F, 0x35C, 0x5B0)
]
MARKS += [
    chr(c) for c in (0x5BC, 0x64B, 0x651, 0x93C, 0xE38, 0xF71, 0xF72, 0xF73, 0xF81, 0x1DC0, 0x302A, 0x3099, 0x309A)
]
MARKS += [chr(c) for c in (0x1ACF, 0x1AE0, 0x10EFA, 0x1D165, 0x1D16D, 0x20D0, 0xFE20, 0x11938, 0x113C5, 0x1E8D0)]
LETTERS = (
    "éÉñçåÅﬀ½²①Ⅷªºµ ŉǆǰΐ Ωω АЯЙйЁё אבגשׁ عربيﷺ नमस्ते ไทย ქართ ደ 漢字一㐀𠀀豈 かガｶﾞ 한글각ᄀ각 ĲǅẞẛȦ̃ ﬃ㎏㍿㋿ 𝒜𝟙𐐀𐐨 ℵÅΩK"
)
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«¶·»¿–—‘’“”†•…‰′€™→∀─█☃♥、。「」！？～￥\u2e43\u061d\u166d"
EMOJI = "😀 🙂‍↔️ 👨‍👩‍👧‍👦 👍🏽 🇹🇷 🇫🇷🇩🇪 ❤️ ☺︎ 1️⃣ #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🧑🏿‍🚀 🫠 🪿".split()
NEW = [0x10940, 0x1E6C0, 0x323B0, 0xA7CE, 0xA7F1, 0x11DB0, 0x16FF4, 0x88F, 0x105C9, 0x11383, 0x16121, 0x1CCD6, 0x1E030]
NEW += [0x1FBF0, 0x32FF, 0x1F16C, 0x2B73A, 0x10D40, 0x1C89, 0x2FFC, 0x2EBF0, 0x378, 0xE0FFF, 0x3FFFD, 0x50000, 0x10FFFD]

NASTY = [
    "",
    " ",
    "a",
    "The old king and the old",
    "Hello, world! How's it going? We'll see; they've left.",
    "HE'LL SAY: 'TIS I'M DON'T",
    "x'sx 'S 'ſ 'Re 'LL'll",
    "snake_case camelCase kebab-case dot.ted C++ a/b",
    "def f(x):\n\treturn x**2  # squared\n\n\n    pass\r\n",
    "for (let i = 0; i < n; i++) { a[i] += `${b}`; }",
    '{"key": [1, 2.5e-10, null, true], "ключ": "значение"}',
    "<html><body class='x'>&nbsp;&amp;</body></html>",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "1234567890 1,234,567.89 3.14 ١٢٣ १२३ ①②③ ½ Ⅷ x² 10⁻³",
    "$5 €5 £5 ¥5 5% 5‰ 5°C 5′ 5″",
    "naïve café über straße Ærøskøbing Łódź Đồng",
    "cafe\u0301 a\u0323\u0301 a\u0301\u0323 e\u0327\u0301 o\u0302\u0301\u0323 \u0301a \u0344",
    "q\u0307\u0323 q\u0323\u0307 \u1e0b\u0323 d\u0323\u0307 \u0f71\u0f72\u0f73\u3099",
    "İstanbul ISPARTA ıspanak iğde İİ I\u0307 i\u0307",
    "ΟΔΥΣΣΕΥΣ Σ ΑΣ ΑΣ. Σίσυφος ᾳ ΐ",
    "ﬁ ﬂ ﬃ ﬆ ĳ ǆ ŉ ß ẞ ſ K Å Ω µ ª",
    "Привет, мир! Ёлка й и\u0306 є",
    "שָׁלוֹם עוֹלָם אָלֶף",
    "مرحبا بالعالم ﷺ لا إله ـــ ١٢٣",
    "नमस्ते दुनिया क्षत्रिय",
    "สวัสดีชาวโลก ภาษาไทย กำ",
    "你好，世界。漢字かな交じり文。㐀𠀀豈更",
    "안녕하세요 세계 각 가\u11a8 \u1100\u1161\u11a8 ㄱㄴ",
    "カタカナ ｶﾀｶﾅ ｶﾞ ガ か\u3099 ゔ",
    "ქართული ԱԲԳ አማርኛ ᏣᎳᎩ ᐃᓄᒃ 𐎀𐤀",
    " ".join(EMOJI),
    "".join(EMOJI),
    "👨‍👩‍👧‍👦👨‍👩‍👧‍👦a👍🏽b",
    "\ufe0f\u200d\U0001f3fd",
    "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg",
    "\ufeffBOM at the start",
    "tab\ttab\t\ttab \t mixed",
    "CR\rLF\nCRLF\r\nLFCR\n\rend",
    "  two leading, trailing  ",
    "\n\n\n",
    "\r\n\r\n",
    "a\n\n\n   b",
    "a   \n   b",
    "a\u00a0b\u00a0\u00a0c",
    "\u2003wide\u2003space\u3000ideographic",
    "a\x85b\u2028c\u2029d\u180ee",
    "\0\x01\x02\x1b[31mred\x1b[0m\x7f\x80\x9f",
    "\ufffd\ufffe\uffff\U0010ffff\ue000\U000f0000",
    "\u202eright to left\u202c \u2066x\u2069",
    "a" * 300,
    "ab" * 500,
    "é" * 200,
    "漢" * 150,
    "🙂" * 120,
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101,
    "x" * 99 + "🙂" + " " + "x" * 100 + "🙂",
    " " * 300,
    "\n" * 100,
    "\t " * 60,
    "." * 200,
    "!?" * 100,
    "0" * 120,
    "e\u0301" * 100,
    "a" + "\u0301" * 60,
    "\u0301" * 30 + "\u0323" * 30,
    "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "[MASK][MASK] a[MASK]b [ MASK ] [mask] [MASK",
    "the [MASK] cat  [MASK]  sat[MASK]",
    "<|endoftext|><|endoftext|> <|im_start|>user\nhi<|im_end|>",
    "<|endoftext|",
    "|endoftext|> <|<|endoftext|>",
    "<s> </s> <pad> <unk> <mask> </ s>",
    "</s></s>a</s>",
    "<0x0A><0xE2> <0xZZ> <0x0a>",
    "▁ ▁▁ a▁b ▁a",
    "## ##ing ing## a##b",
    "Ġ Ġa Ċ ĉ Ā",
    "New York New  York NewYork new york NEW YORK",
    "Paris parisian ParisParis éParis Parisé _Paris Paris_ Paris. Paris1",
    " Paris   Paris ",
    "don't can't won't shouldn't've y'all'd've",
    "'s's's 's 't 're 've 'm 'll 'd ''s",
    "’s ’t ’re it’s",
    "a.b,c;d:e!f?g",
    "(a)[b]{c}<d>",
    "--- --- ___ *** ===",
    "—–-‐‑‒―",
    "\u2e43\u2e4f\u061d\u166d\u1b4e\u09fd",
    "a\u0300b\u0316c\u0334d\u20d0e\ufe20f",
    "\u1acf\u1ae0\U00010efa\U0001e6c0\U000323b0\ua7ce\ua7f1",
    "\U000105c9\U00011383\U000113c5\U00011938\U00016121\U0001e030\U0001fbf5\u32ff",
    "\u0132\u01c5\u1e9b\u0323 \u212b\u2126 \u2460 \u3300 \ufb01",
    "H₂O E=mc² x₁² ∑∫∂√∞≈≠≤≥",
    "𝒜𝓑𝔠 𝟙𝟚𝟛 🄰🅱 Ⓐⓑ",
    "１２３ ＡＢＣ ａｂｃ ！？ ￥",
    "\u00b4\u02da\u0384\u1fbd \u037a \u203e",
    "\u0958\u0929\u09dc\u0a33 \u0b94\u0cca\u0dde \u0f43\u0f76\u1026",
    "\ufb1d\ufb2a\ufb4f \ufdfa \ufe70",
    "aͅ ᾳ ͅ α\u0345\u0301",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319A\u0309",
    "c\u0327\u0301\u0327 \u00e7\u0301\u0327",
    "\U0001d15e\U0001d164 \U0001d158\U0001d165",
    "a\u034f\u0301 a\u0301\u034f",
    "line one\nline two \n line three\n\n",
    "trailing newline\n",
    "trailing spaces \n\n  ",
    "end\x00",
    "user:\n\n  - item\n  - item 2\n",
    "\t\tif (x)\t{\r\n\t\t\ty();\r\n\t\t}\r\n",
    "O'Neill's rock'n'roll 'quoted' \"double\"",
    "mixed漢字andラテンtext한글🙂end",
    "数字123と文字abc",
    "ABCdefGHI iPhone McDonald eBay HTMLParser",
    "aaaa aaa aa a      b  bb   bbb",
    "\u0e33\u0e48 \u0e40\u0e01 \u0e33",
    "ﬀ'ﬀ 'ﬅ 'ß",
    "x\u00adsoft\u00adhyphen",
    "\u2126\u03a9\u2126",
    "ǅ ǈ ǋ ǲ",
    "۱۲۳۴۵ ༡༢༣ 一二三",
]


@cache
def _pools() -> list[list[str]]:
    return [
        WORDS,
        WORDS,
        SPELLED,
        SPACES,
        [" "],
        CONTROLS,
        MARKS,
        list(LETTERS),
        list(PUNCTUATION),
        EMOJI,
        list("abcdefghijklmnopqrstuvwxyz"),
        list("ABCXYZ0123456789"),
        [chr(code) for code in NEW],
    ]


@cache
def random_texts(count: int, seed: int = 0) -> list[str]:
    return [_random_text(random.Random(f"{seed} {i}")) for i in range(count)]


def _random_text(dice: random.Random) -> str:
    pools = dice.sample(_pools(), 5)
    return "".join(
        _any_character(dice) if dice.random() < 0.05 else dice.choice(dice.choice(pools))
        for _ in range(dice.randint(1, 14))
    )


def _any_character(dice: random.Random) -> str:
    code = (
        dice.randrange(0xD800)
        if dice.random() < 0.7
        else dice.choice([dice.randrange(0xE000, 0x3FFFF), dice.randrange(0x110000)])
    )
    return chr(code) if not 0xD800 <= code < 0xE000 else "x"


# Each with something before and after it, which pre-tokenizers and added tokens look at
NASTY += [f"a{text[:40]}" for text in NASTY[20:60]] + [f"{text[:40]} b" for text in NASTY[40:90]]
