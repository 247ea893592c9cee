"""Words of messages: counts, and which name was meant."""

import pytest

from endive.wording import counted, nearest, suggestion, utc


def test_case_is_no_difference() -> None:
    assert nearest("S3", ["s3", "s3x"]) == "s3"


def test_one_is_not_many() -> None:
    assert [counted(count, "table") for count in (0, 1, 2, 2000)] == ["0 tables", "1 table", "2 tables", "2,000 tables"]


def test_a_moment_is_readable() -> None:
    assert utc(1_577_836_800_999) == "2020-01-01 00:00:00"
    assert utc(1_577_836_800_099, precise=True) == "2020-01-01 00:00:00.099"
    assert utc(1_577_836_800_000, precise=True) == "2020-01-01 00:00:00"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("evnts", "events"),
        ("dya", "day"),
        ("lng", "long"),
        ("s3y", "s3x"),
        ("db.evnts", "db.events"),
        ("prod.events", "dev.events"),
        ("endive.attempts", "endive.commit.attempts"),
        ("num_table", "num_tables"),
    ],
)
def test_the_name_that_was_meant_is_found(typed: str, meant: str) -> None:
    assert nearest(typed, ["zzz", meant, "quite another"]) == meant
    assert suggestion(typed, [meant]) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("typed", "other"),
    [("x", "y"), ("v2", "v1"), ("ab", "db"), ("db.x", "db.y"), ("db.v2", "db.v1"), ("tags", "tables"), ("a.t", "b.u")],
)
def test_a_name_that_shares_but_a_letter_or_its_namespace_is_not_offered(typed: str, other: str) -> None:
    assert nearest(typed, [other]) is None
    assert suggestion(typed, [other]) == ""


def test_the_nearest_of_several_is_offered() -> None:
    assert nearest("stat", ["start", "state", "status"]) in {"start", "state"}
    assert nearest("anything", []) is None
