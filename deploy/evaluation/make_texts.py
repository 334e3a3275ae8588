#!/usr/bin/env python3
"""Makes tom_sawyer.txt and next_word.jsonl, the texts that `nightshift evaluate` is tried on.

    make_texts.py SOURCE

SOURCE: "The Adventures of Tom Sawyer" by Mark Twain (1876, in the public domain) as the plain text of Project
Gutenberg has it. Debian's package golang-github-klauspost-compress-dev 1.15.12 holds that file:
usr/share/gocode/src/github.com/klauspost/compress/testdata/Mark.Twain-Tom.Sawyer.txt.

tom_sawyer.txt: the first chapters, at least 45,000 words, a paragraph a line with a blank line between.
next_word.jsonl: one {"text"} a line in the manner of LAMBADA, from the whole book: sentences up to one that ends in a
word to guess, which is a plain one and has occurred in them before.
"""

import json
import pathlib
import re
import sys

LEAST_WORDS = 45_000
CONTEXT_WORDS = 100  # at least, in whole sentences before the last one
MOST_WORDS = 240     # of a passage
# That say little, and that a text repeats anyway.
FUNCTION_WORDS = set("""about again all and any are away back been before but can come could did does done down ever for
from had has have her here him his how into just more most much never not now off once one only our out over own said
she should some such than that the them then there they this too under very was way well were what when where which
while who will with would yes yet you your""".split())
HERE = pathlib.Path(__file__).parent


def paragraphs(source):
    """From the first chapter on, each on one line."""
    text = source.replace("\r", "")
    text = text[text.index("CHAPTER I\n"):text.index("End of the Project Gutenberg")]
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text) if block.strip()]


def first_chapters(blocks):
    kept, words = [], 0
    for block in blocks:
        if block.startswith("CHAPTER ") and words >= LEAST_WORDS:
            break
        kept.append(block)
        words += len(block.split())
    return kept


def sentences(blocks):
    for block in blocks:
        if not block.startswith("CHAPTER "):
            yield from re.findall(r"\S.*?(?:[.!?][\"']*(?=\s)|$)", block)


def passages(blocks):
    held = []
    for sentence in sentences(blocks):
        words = sentence.split()
        before = " ".join(held).split()
        target = re.fullmatch(r"([a-z]{3,})[.!?][\"']*", words[-1])
        context = before + words[:-1]
        known = set(re.findall(r"[a-z]+", " ".join(context).lower())) - FUNCTION_WORDS
        if (target and target[1] in known and len(before) >= CONTEXT_WORDS and
                len(words) >= 5 and len(context) < MOST_WORDS):
            yield " ".join(context + [target[1]])
        held.append(sentence)
        while len(" ".join(held[1:]).split()) >= CONTEXT_WORDS:
            held.pop(0)


def main():
    whole = paragraphs(pathlib.Path(sys.argv[1]).read_text())
    blocks = first_chapters(whole)
    (HERE / "tom_sawyer.txt").write_text("\n\n".join(blocks) + "\n")
    rows = [json.dumps({"text": text}) for text in passages(whole)]
    (HERE / "next_word.jsonl").write_text("\n".join(rows) + "\n")
    print(len(" ".join(blocks).split()), "words,", len(rows), "passages")


if __name__ == "__main__":
    main()
