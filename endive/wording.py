"""Words that many messages need: counts, moments, and the name that was probably meant."""

from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import SequenceMatcher, get_close_matches


def counted(count: int, noun: str) -> str:
    """Return a number and what it counts: `1 table`, `2,000 tables`, `0 tables`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def utc(unix_ms: int, precise: bool = False) -> str:
    """Return a moment for people, in UTC to the second; `precise`: to the millisecond if it is within a second."""
    moment = datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}.{unix_ms % 1000:03d}" if precise and unix_ms % 1000 else moment


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the one of `words` that was probably meant; None if none is like `word`.

    Likeness alone makes too much of short names, and of long ones that begin alike: `db.x` and `db.y` are as like as
    two words with one letter changed. So of what differs, level by level, two letters of three must agree.
    """
    known = list(dict.fromkeys(words))
    close = get_close_matches(word, known, n=max(len(known), 1), cutoff=cutoff)
    return next((other for other in close if _is_near(word, other)), None)


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return "; did you mean ...?" if one of `words` was probably meant, else nothing."""
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
