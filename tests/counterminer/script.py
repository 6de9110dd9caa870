"""Sorts, counts, matches and serialises words that a seed gives."""

import json
import random
import re
import sys

rng = random.Random(int(sys.argv[1]))
letters = "abcdefghijklmnopqrstuvwxyz"
words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(1500)]
pattern = re.compile(r"([aeiou][^aeiou])+")
total = 0
for turn in range(32):
    counts = {}
    for word in rng.choices(words, k=rng.randint(800, 3000)):
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts.items(), key=lambda it: (-it[1], it[0]))
    total += sum(bool(pattern.search(word)) for word, _ in ranked[: rng.randint(100, 900)])
    text = json.dumps({"turn": turn, "ranked": ranked[: rng.randint(50, 600)]})
    total += len(json.loads(text)["ranked"])
    numbers = [rng.random() for _ in range(rng.randint(500, 2500))]
    total += int(sum(x * x for x in numbers))
print(total)
