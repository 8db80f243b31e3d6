"""`--pipeline-model-parallel-layout`: which layers each model chunk has, e.g. `Et*3|(tt|)*29,m|L`.

E is the embedding, t a transformer layer, m a multi-token-prediction module, L the loss; `|` ends a chunk, `*n` repeats
what stands before it, parentheses group, commas only separate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOKEN = re.compile(r"\(|\)|\||\*\d{1,4}|[EtmL]")
MOST = 100_000


def parse(text: str) -> tuple[int, ...] | None:
    """Transformer layers of each chunk in pipeline order, or None where the text is no layout."""
    plain = re.sub(r"[\s,]+", "", text)
    if len(plain) > 20_000 or _TOKEN.sub("", plain):
        return None
    groups: list[str] = [""]
    last: list[str] = [""]
    for token in _TOKEN.findall(plain):
        if token == "(":
            groups.append("")
            last.append("")
        elif token == ")":
            if len(groups) < 2:
                return None
            inner = groups.pop()
            last.pop()
            groups[-1] += inner
            last[-1] = inner
        elif token[0] == "*":
            times = int(token[1:])
            if len(last[-1]) * times > MOST:
                return None
            groups[-1] = groups[-1][: len(groups[-1]) - len(last[-1])] + last[-1] * times
            last[-1] = ""
        else:
            groups[-1] += token
            last[-1] = token
        if len(groups) > 20 or len(groups[-1]) > MOST:
            return None
    return tuple(chunk.count("t") for chunk in groups[0].split("|")) if len(groups) == 1 else None


def write(sizes: Sequence[int], mtp: int = 0) -> str:
    """The layout of chunks with so many layers; the last one holds the modules and the loss."""
    chunks = ["t" * n if n < 4 else f"t*{n}" for n in sizes]
    chunks[0] = f"E{chunks[0]}"
    chunks[-1] += ("," if chunks[-1] else "") + "m" * mtp + "L"
    return "|".join(chunks)
