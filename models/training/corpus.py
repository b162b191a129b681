"""The text the demo models learn: the King James Bible from Debian's `bible-kjv-text` (public domain, 1611 translation).

`apt-get download` brings two packages (the text and the small reader that decompresses it) into `build/`; nothing is
installed. A document is one chapter: a heading, a blank line, one verse per line.
"""

import pathlib
import random
import re
import subprocess

MODELS = pathlib.Path(__file__).resolve().parent.parent
BUILD = MODELS / "training" / "build"

SPECIALS = ["<|pad|>", "<|bos|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>"]
PAD, BOS, EOS, SYSTEM, USER, ASSISTANT = range(len(SPECIALS))
VOCABULARY = 2048

BOOKS = (
    "Genesis|Exodus|Leviticus|Numbers|Deuteronomy|Joshua|Judges|Ruth|1 Samuel|2 Samuel|1 Kings|2 Kings|1 Chronicles|"
    "2 Chronicles|Ezra|Nehemiah|Esther|Job|Psalms|Proverbs|Ecclesiastes|Song of Solomon|Isaiah|Jeremiah|Lamentations|"
    "Ezekiel|Daniel|Hosea|Joel|Amos|Obadiah|Jonah|Micah|Nahum|Habakkuk|Zephaniah|Haggai|Zechariah|Malachi|Matthew|Mark|"
    "Luke|John|Acts|Romans|1 Corinthians|2 Corinthians|Galatians|Ephesians|Philippians|Colossians|1 Thessalonians|"
    "2 Thessalonians|1 Timothy|2 Timothy|Titus|Philemon|Hebrews|James|1 Peter|2 Peter|1 John|2 John|3 John|Jude|Revelation"
).split("|")

# Held out: a contiguous run of whole chapters from here on, until it holds this share of the characters.
HELD_OUT_FROM = ("Ruth", 1)
HELD_OUT_SHARE = 0.02


def fetch():
    """Returns the path of the extracted text, fetching and unpacking it on the first call."""
    text = BUILD / "kjv.txt"
    if text.exists():
        return text
    root = BUILD / "packages"
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "bible-kjv-text", "bible-kjv"], cwd=root, check=True)
    for package in sorted(root.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=root, check=True)
    verses = subprocess.run(
        [root / "usr/bin/bible", "-f", "-p", root / "usr/lib", "Gen1:1-Rev22:21"], capture_output=True, check=True
    )
    text.write_bytes(verses.stdout)
    return text


def chapters():
    """Returns `[(book, chapter, [verse text])]` in order."""
    out, seen = [], {}
    for line in fetch().read_text(encoding="latin-1").splitlines():
        book, chapter, verse, words = re.match(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)", line).groups()
        book = BOOKS[seen.setdefault(book, len(seen))]
        if verse == "1":
            out.append((book, int(chapter), []))
        out[-1][2].append(" ".join(words.split()))
    return out


def split():
    """Returns (training chapters, held-out chapters)."""
    every = chapters()
    budget = HELD_OUT_SHARE * sum(len(v) for _, _, verses in every for v in verses)
    start = next(i for i, (book, chapter, _) in enumerate(every) if (book, chapter) == HELD_OUT_FROM)
    end = start
    while budget > 0:
        budget -= sum(len(v) for v in every[end][2])
        end += 1
    return every[:start] + every[end:], every[start:end]


def plain(chapter):
    """A chapter as running text."""
    book, number, verses = chapter
    return f"{book} {number}\n\n" + "\n".join(verses)


def turns(chapter, rng):
    """A chapter as a conversation: the user gives a verse, the assistant goes on with the next few."""
    verses, out = chapter[2], []
    while len(verses) > 1:
        answer = rng.randint(1, 5)
        out.append((verses[0], "\n".join(verses[1 : 1 + answer])))
        verses = verses[1 + answer :]
    return out


def tokens(tokenizer, chapter, rng, chat_share):
    """Token ids of one document, with its markers."""
    encode = lambda s: tokenizer.encode(s, add_special_tokens=False).ids
    if rng.random() >= chat_share:
        return [BOS, *encode(plain(chapter)), EOS]
    ids = [BOS]
    for question, answer in turns(chapter, rng):
        ids += [USER, *encode(question), ASSISTANT, *encode(answer), EOS]
    return ids


def stream(tokenizer, documents, seed, chat_share=0.15):
    """One epoch: every document once, shuffled, as one list of token ids."""
    rng = random.Random(seed)
    order = list(documents)
    rng.shuffle(order)
    return [t for d in order for t in tokens(tokenizer, d, rng, chat_share)]
