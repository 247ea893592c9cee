"""Text shared by many messages: counts, timestamps, and spelling suggestions."""

from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import SequenceMatcher, get_close_matches


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 table`, `2,000 tables`, `0 tables`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeou" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def utc(unix_ms: int, precise: bool = False) -> str:
    """Return a readable timestamp in UTC, to the second; `precise`: with milliseconds unless they are zero."""
    moment = datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}.{unix_ms % 1000:03d}" if precise and unix_ms % 1000 else moment


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar of `words`; None if none is similar enough.

    `difflib` alone overrates short names and long names with a common beginning: it finds `db.x` and `db.y` as similar
    as two words with one letter changed. So the parts between dots are compared one by one, and in each part that
    differs two of three letters must agree.
    """
    known = list(dict.fromkeys(words))
    same = next((other for other in known if other.lower() == word.lower()), None)
    if same is not None:
        return same
    close = get_close_matches(word, known, n=max(len(known), 1), cutoff=cutoff)
    return next((other for other in close if _is_near(word, other)), None)


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the most similar of `words`, or the empty string."""
    found = nearest(word, words)
    return f"; did you mean {found!r}?" if found is not None else ""


def _is_near(word: str, other: str) -> bool:
    levels, others = word.split("."), other.split(".")
    if len(levels) != len(others):
        return _agrees(word, other)
    if len(levels) > 1 and levels[-1] == others[-1]:
        return True  # the right thing, looked for in the wrong place
    return all(one == two or _agrees(one, two) for one, two in zip(levels, others, strict=True))


def _agrees(word: str, other: str) -> bool:
    """Whether two letters of three are the same, in the same order; a word of two letters has none to spare."""
    same = sum(block.size for block in SequenceMatcher(None, word, other, autojunk=False).get_matching_blocks())
    return 3 * (max(len(word), len(other)) - same) <= max(len(word), len(other))
