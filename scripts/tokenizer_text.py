"""Mixed text for tokenizer tests: sentences of many scripts, and random mixtures of what tokenizers get wrong."""

import random

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, doesn't it? They've said we'll see; I'm sure he'd agree.",
    "IT'S LOUD HERE AND WE'RE SHOUTING: DON'T, CAN'T, YOU'LL, I'VE, SHE'D. O'Neill's 'quoted' word'word.",
    "In 1984 there were 365.25 days, 12345678901234567890 digits, 3/4 of 1,000,000 and version 2.0.1-rc3.",
    "def main(argv):\n    if len(argv) < 2:\n\t\treturn -1  # usage\n    print(f\"{argv[1]!r}\")\n\n\n",
    "<p class=\"note\">Tags &amp; entities</p>\r\n<br/>\r\n\r\n   trailing spaces   \n\n  \t \n",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; daß Straße weiß bleibt.",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L'été, c'est déjà l'hiver.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío; ¿añoraba a su querido cachorro?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Это было в 1917 году.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, και ύστερα γράφω ένα γράμμα.",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। १२३४५",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. ١٢٣٤",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה.",
    "我能吞下玻璃而不伤身体。今天的天气很好，我们去公园吧！二〇二四年",
    "いろはにほへと ちりぬるを。カタカナも混ぜて、漢字とひらがな。",
    "다람쥐 헌 쳇바퀴에 타고파. 안녕하세요, 반갑습니다!",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์",
    "Emoji: 😀😃 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️‍🔥 ☃︎ ✨✨✨ ½ ² ³ Ⅷ ① ㊄",
    "Combining: e\u0301 a\u030a n\u0303 Z\u0351\u036b\u0343 vs. é å ñ; ligatures ﬁ ﬂ ﬆ ſ K Å",
    "Spaces:\u00a0nbsp\u2003em\u2009thin\u202fnarrow\u3000wide\u1680ogham\u180emongolian\u200bzero\u2028line\u2029par\u0085nel",
    "Controls: \x00\x01\x02 \x07 \x08 \x0b \x0c \x1b[31mred\x1b[0m \x7f \x80 \x9f \ufeff \ufffd \U0010ffff",
    "math ∑_{i=0}^{n} x_i² ≤ ∞ ∀ε>0 ∃δ 𝒜𝔅ℂ 𝟙𝟚 ← → ⇒ €100 £20 ¥3000 ₹50",
    "ʼn't 'S 'T 'RE 'Ve 'lL 'ſ 'D'd''s's ' s 't’s it’s 'tis '90s",
]

RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF), (0xE00, 0xE7F),
          (0x10A0, 0x11FF), (0x1E00, 0x206F), (0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
          (0xE000, 0xE0FF), (0xF900, 0xFFFD), (0x10000, 0x1013F), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
          (0x20000, 0x200FF)]
GLUE = [" ", " ", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "", "", "'", "-", ", ", ". ",
        "...", "!!!", "===", "<|endoftext|>", " <|endoftext|> ", "<|custom|>", "<|endoftext", "\0"]


def random_word(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return str(rng.randrange(10 ** rng.randrange(1, 12)))
    if kind == 1:
        low, high = rng.choice(RANGES)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 9)))
    if kind == 2:
        return rng.choice(["I", "you", "he", "WE", "x"]) + rng.choice(["'s", "'T", "'re", "'Ve", "'m", "'LL", "'d", "'x"])
    if kind == 3:
        return rng.choice("aA=- #\n\t.0é中") * rng.randrange(1, 200)
    return rng.choice(rng.choice(SENTENCES).split(" "))


def documents(num_bytes, seed=0):
    """Texts with about num_bytes of UTF-8 together."""
    rng = random.Random(seed)
    done = 0
    while done < num_bytes:
        if rng.random() < 0.3:
            text = rng.choice(SENTENCES)
        else:
            text = "".join(random_word(rng) + rng.choice(GLUE) for _ in range(rng.randrange(1, 300)))
        text = "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF)
        done += len(text.encode())
        yield text
