"""A bucket that fails in the middle of a sweep: one message with a remedy, and nothing that looks complete."""

import os
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest

from endive.errors import ResultError
from endive.pipeline.catalog_tables import Publication, catalog_at, read_runs
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.execute import sweep_job
from endive.pipeline.plan import Bin
from endive.pipeline.task import run_bin
from tests.pipeline.sweeps import small_plan
from tests.servers.refusing import Refusals, refusing_proxy

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[tuple[str, Refusals]]:
    with refusing_proxy(s3_endpoint, Refusals(every=0)) as started:
        yield started


def answer(status: int, code: str) -> tuple[int, bytes]:
    return status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


FAILURES = {
    "a full bucket": (answer(507, "InsufficientStorage"), "free some space or choose another --out"),
    "a quota": (answer(403, "QuotaExceeded"), "free some space or choose another --out"),
    "expired credentials": (answer(400, "ExpiredToken"), "renew the credentials, then repeat the command"),
    "a bucket that is gone": (answer(404, "NoSuchBucket"), "create the bucket, or correct the URL"),
    "another region": (answer(400, "AuthorizationHeaderMalformed"), "set the region to that of the bucket"),
    "a redirect to another region": (answer(301, "PermanentRedirect"), "set the region to that of the bucket"),
    "no permission": (answer(403, "AccessDenied"), "check that the bucket exists and the permissions of"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_bucket_that_fails_in_the_middle(name: str, proxy: tuple[str, Refusals]) -> None:
    endpoint, refusals = proxy
    denial, remedy = FAILURES[name]
    plan = small_plan(tables="[1]")
    directory = SweepDirectory(f"s3://bucket/errors/{name.replace(' ', '-')}", endpoint)
    digest = directory.prepare(plan)
    job = sweep_job(plan, directory, [Bin(plan.runs[:3], 1.0), Bin(plan.runs[3:], 1.0)])
    assert run_bin(job, 0, attempt=0).error is None

    refusals.denial = denial
    report = run_bin(job, 1, attempt=0)
    refusals.denial = None

    assert report.statuses == {}
    assert str(report.error).startswith(f"{directory}/{job.part(1)}: cannot be written (")
    assert remedy in str(report.error)
    assert directory.parts() == [job.part(0)]
    assert directory.done(plan) == set(plan.runs[:3])  # a repeated command does the others
    assert directory.shown_plan() == digest


@pytest.mark.parametrize("name", ["a quota", "expired credentials", "a bucket that is gone", "another region"])
def test_a_bucket_that_fails_in_the_middle_of_a_sweep_in_tables(name: str, proxy: tuple[str, Refusals]) -> None:
    endpoint, refusals = proxy
    denial, remedy = FAILURES[name]
    plan, url = small_plan(tables="[1]"), f"s3://bucket/lakes/{name.replace(' ', '-')}"
    directory = SweepDirectory(f"{url}/sweeps-in-progress/small", endpoint)
    directory.prepare(plan)
    with Publication(url, "small", directory, alone=True) as publication:
        publication.begin(plan.runs)
        bins = [Bin(plan.runs[:3], 1.0), Bin(plan.runs[3:], 1.0)]
        job = sweep_job(plan, directory, bins, publication.table_files())
        publication.commit({0: run_bin(job, 0, attempt=0).files or {}}, is_last=True)
        written = run_bin(job, 1, attempt=0).files or {}

        refusals.denial = denial
        report = run_bin(job, 1, attempt=1)
        with pytest.raises(ResultError, match=f"^{url}: the table sweep.runs cannot be written .*{remedy}"):
            publication.commit({1: written}, is_last=True)
        refusals.denial = None

    assert (report.statuses, report.files) == ({}, None)
    assert "the rows of a bin cannot be written (" in str(report.error)
    assert remedy in str(report.error)
    done = {(row["experiment"], row["seed"]) for row in read_runs(catalog_at(url, endpoint), "small").to_pylist()}
    assert done == set(plan.runs[:3])  # a repeated command does the others


def test_a_bucket_that_is_deleted_in_the_middle(s3_endpoint: str) -> None:
    def ask(method: str, path: str) -> None:
        with urlopen(Request(f"{s3_endpoint}/{path}", method=method), timeout=30):  # noqa: S310 - our own, on loopback
            pass

    ask("PUT", "brief")
    plan, directory = small_plan(tables="[1]"), SweepDirectory("s3://brief/x", s3_endpoint)
    directory.prepare(plan)
    job = sweep_job(plan, directory, [Bin(plan.runs[:3], 1.0)])
    directory.delete_all("")
    ask("DELETE", "brief")

    report = run_bin(job, 0, attempt=0)

    assert report.statuses == {}
    assert str(report.error).startswith("s3://brief/x/about.json: cannot be read (NoSuchBucket: ")
    assert str(report.error).endswith("; create the bucket, or correct the URL")
    with pytest.raises(ResultError, match="create the bucket"):
        directory.done(plan)
    with pytest.raises(ResultError, match="create the bucket"):
        directory.delete(job.part(0))
    ask("PUT", "brief")
    assert directory.list("") == ()


def test_a_bucket_that_does_not_exist_is_reported_before_anything_runs(s3_endpoint: str) -> None:
    directory = SweepDirectory("s3://nowhere/sweeps/x", s3_endpoint)

    # SeaweedFS denies a write to a bucket that is not there; S3 says NoSuchBucket.
    remedy = "check that the bucket exists|create the bucket"
    with pytest.raises(ResultError, match=rf"^s3://nowhere/sweeps/x/.* cannot be written \(.*; ({remedy})"):
        directory.prepare(small_plan(tables="[1]"))


def test_a_server_that_does_not_answer_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ.setdefault("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    directory = SweepDirectory("s3://bucket/x", "http://127.0.0.1:9")
    directory._driver._sleep = lambda _: None

    with pytest.raises(ResultError, match="repeat the command: finished work is kept"):
        directory.prepare(small_plan(tables="[1]"))
