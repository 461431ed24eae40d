"""20,000 conversations: how long a list and a search take. Called by figures.py (--only library)."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

CONVERSATIONS = 20_000
TURNS = 5
ALPHABET = "ka to mi re su lo ne vi pa du fe ro sha len gri mon tal ver".split()


def write(folder, count):
    """Conversations of ten messages, every word of which is made up; one of them says 'quetzalcoatl'."""
    dice = random.Random(7)
    words = ["".join(dice.choices(ALPHABET, k=dice.randint(1, 4))) for _ in range(5000)]
    folder.mkdir(parents=True)
    begin = 1_700_000_000_000
    for n in range(count):
        at = begin + n * 60_000
        name = f"{at:013}-{n:08x}"
        lines = [{"type": "header", "version": 1, "id": name, "created": at}]
        for turn in range(2 * TURNS):
            text = " ".join(dice.choices(words, k=20 if turn % 2 == 0 else 80))
            if n == count // 2 and turn == 3:
                text += " quetzalcoatl"
            role = "assistant" if turn % 2 else "user"
            lines.append({"type": "message", "id": turn + 1, "parent": turn or None, "role": role, "text": text, "at": at + turn})
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        os.utime(path, (at / 1000, at / 1000))
    return words


def measure(program, median):
    out = []
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        words = write(home / "data" / "conversations", CONVERSATIONS)
        env = dict(os.environ, LLMCHAT_DATA_DIR=str(home / "data"), LLMCHAT_STATE_DIR=str(home / "state"),
                   LLMCHAT_CACHE_DIR=str(home / "cache"), LLMCHAT_CONFIG=str(home / "config.toml"))

        def timed(*arguments, runs=5):
            times = []
            for _ in range(runs):
                begin = time.monotonic()
                done = subprocess.run([program, "conversations", *arguments], env=env, capture_output=True)
                times.append((time.monotonic() - begin) * 1000)
                if done.returncode != 0:
                    raise SystemExit(f"{arguments}: {done.stderr.decode()}")
            return median(times), done.stdout

        first, _ = timed("list", runs=1)
        size = sum(p.stat().st_size for p in (home / "cache").iterdir()) / (1 << 20)
        listed, text = timed("list")
        rare, hit = timed("search", "quetzalcoatl")
        common, _ = timed("search", words[0])
        last = sorted((home / "data" / "conversations").iterdir())[-1]
        with open(last, "a") as file:
            file.write(json.dumps({"type": "message", "id": 99, "parent": 10, "role": "user", "text": "xylophon", "at": 0}) + "\n")
        fresh, _ = timed("search", "xylophon", runs=1)
        assert text.count(b"\n") == CONVERSATIONS and hit.count(b"quetzalcoatl") == 1
        out.append(f"{CONVERSATIONS:,} conversations of {2 * TURNS} messages: first list {first / 1000:.1f} s (index {size:.0f} MiB), "
                   f"then list {listed:.0f} ms, a rare word {rare:.0f} ms, a word of many {common:.0f} ms, "
                   f"a word said just now {fresh:.0f} ms")
    return out
