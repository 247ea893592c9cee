"""Sweeps that are killed at random moments, the Spark driver included, and resumed until they end.

A moment is one of the sweep's requests to the bucket, before or after the request takes effect: on a fast and on a busy
machine alike, it is as often the plan as a part, a measure or the clean-up.
"""

import os
import random
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from endive.catalog import KVCatalog
from endive.pipeline.catalog_tables import catalog_at
from endive.pipeline.cleaning import EVER_UNIX_MS
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.opening import open_results
from endive.pipeline.plan import Plan, Run
from endive.pipeline.results import SweepResults
from endive.pipeline.saved_sweep import SavedSweep, one_per_run
from endive.pipeline.sweep_file import load_group
from endive.spark.source.options import open_catalog
from tests.pipeline.sweeps import expected_rows, sweep_text
from tests.pipeline.test_bucket_sweep import flaky  # noqa: F401 - a fixture
from tests.pipeline.test_command import descendants
from tests.pipeline.test_execute import present
from tests.servers.conftest import s3_endpoint  # noqa: F401 - a fixture
from tests.servers.refusing import Refusals
from tests.surfaces.files import start

KILLS = int(os.environ.get("ENDIVE_KILLS", "20"))
SEED = int(os.environ.get("ENDIVE_SEED", "17"))
SWEEP = sweep_text("[1, 2]", "[60, 70, 80, 90]").replace("300_000", "1_200_000")
"""24 runs in 6 bins."""
KINDS = ("everything", "the driver", "the JVM")

Rows = list[dict[str, object]]


@dataclass
class Killer:
    """Kills a sweep at one of its requests."""

    sweep: "subprocess.Popen[str]"
    kind: str
    moment: int
    has_effect: bool
    has_killed: bool = False
    _requests: "count[int]" = field(default_factory=lambda: count(1))

    def __call__(self, has_effect: bool) -> None:
        if has_effect is self.has_effect and next(self._requests) == self.moment:
            self.has_killed = True
            for pid in self.victims():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def victims(self) -> list[int]:
        family = descendants(self.sweep.pid)
        if self.kind == "everything":
            return [self.sweep.pid, *family]
        machines = [pid for pid in family if name_of(pid) == "java"]
        return machines if self.kind == "the JVM" and machines else [self.sweep.pid]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@dataclass
class InDirectory:
    """A sweep in a directory of a bucket, with its transactions."""

    endpoint: str
    keep = "transactions"

    @property
    def directory(self) -> SweepDirectory:
        return SweepDirectory("s3://bucket/sweeps/killed", self.endpoint)

    @property
    def options(self) -> list[str]:
        return ["--out", str(self.directory)]

    def rows(self) -> Rows:
        """Every row that there is."""
        tables = [rows for _, rows in self.directory.read_parts(self.directory.parts())]
        for rows in tables:
            assert len(one_per_run(rows)) == len(rows)
        return [row for rows in tables for row in rows.to_pylist()]

    def check_interrupted(self, plan: Plan) -> None:
        """Done runs have their transactions; measures that look complete are."""
        kept = {info.path for info in self.directory.list("transactions/")}
        assert {self.directory.transactions(*run) for run in self.directory.done(plan)} <= kept
        if self.directory.read("measures/inputs.json") is not None:
            assert len(SweepResults(self.directory).measures("runs")) == len(plan.runs)

    def check_ended(self, plan: Plan) -> None:
        left = Counter(info.path.partition("/")[0] for info in self.directory.list(""))
        (name,) = (info.path for info in self.directory.list("experiments-"))
        assert left.keys() == {"about.json", "measures", "runs", "transactions", name}
        assert left["transactions"] == len(plan.runs)
        assert len(SavedSweep(self.directory).runs()) == len(plan.runs)
        assert len(SweepResults(self.directory).measures("runs")) == len(plan.runs)

    def forget(self) -> None:
        self.directory.delete_all("")


@dataclass
class InTables:
    """A sweep in tables alone."""

    endpoint: str
    lakes: "count[int]" = field(default_factory=count)
    keep = "summaries"

    def __post_init__(self) -> None:
        self.forget()

    @property
    def options(self) -> list[str]:
        return ["--catalog", self.url]

    def rows(self) -> Rows:
        """Every row that there is."""
        if not SweepDirectory(self.url, self.endpoint).list(""):
            return []
        with open_catalog({**catalog_at(self.url, self.endpoint), "endive.create": "true"}) as catalog:
            if not catalog.table_exists("sweep.runs"):
                return []
            rows = catalog.load_table("sweep.runs").scan().to_arrow()
        assert len(one_per_run(rows)) == len(rows)
        return [{key: value for key, value in row.items() if key != "sweep"} for row in rows.to_pylist()]

    def check_interrupted(self, plan: Plan) -> None:
        """Committed runs are those of the plan, once each: `rows` has checked that."""

    def check_ended(self, plan: Plan) -> None:
        assert SweepDirectory(self.url, self.endpoint).list("sweeps-in-progress/") == ()
        with KVCatalog.open(self.url, None, catalog_at(self.url, self.endpoint), create=False) as catalog:
            found = catalog.remove_orphan_files("sweep.runs", EVER_UNIX_MS, dry_run=True)
        assert [path for path in found if path.endswith(".parquet")] == []
        assert len(open_results(self.url, endpoint=self.endpoint).measures("runs")) == len(plan.runs)

    def forget(self) -> None:
        self.url = f"s3://bucket/lakes/{next(self.lakes)}"


@pytest.mark.campaign
@pytest.mark.parametrize("place", [InDirectory, InTables])
def test_a_sweep_killed_at_twenty_random_moments_ends_as_if_it_had_not(
    tmp_path: Path,
    flaky: tuple[str, Refusals],  # noqa: F811 - the fixture
    place: type[InDirectory] | type[InTables],
) -> None:
    """`ENDIVE_SEED` chooses the moments, `ENDIVE_KILLS` how many."""
    rng, (endpoint, refusals) = random.Random(SEED), flaky
    sweep = place(endpoint)
    (tmp_path / "killed.toml").write_text(SWEEP.replace("summaries", sweep.keep))
    plan = Plan((load_group(str(tmp_path / "killed.toml")),))
    expected = {(row["experiment"], row["seed"]): row for row in present(expected_rows(plan))}

    def begin() -> "subprocess.Popen[str]":
        common = ("--endpoint", endpoint, "--no-report", "--clean")
        return start(tmp_path, "sweep", "killed.toml", *sweep.options, *common)

    _, said = (process := begin()).communicate(timeout=900)
    assert process.returncode == 0, said
    requests_total, kills = refusals.requests, 0
    sweep.forget()
    while kills < KILLS:
        process, kind = begin(), KINDS[kills % len(KINDS)]
        killer = Killer(process, kind, rng.randint(1, requests_total), rng.random() < 0.5)
        refusals.interrupt = killer
        _, said = process.communicate(timeout=900)
        refusals.interrupt = None
        kills += killer.has_killed
        assert "Traceback" not in said or kind == "the JVM"  # whose log's last lines are part of the message
        assert_among(expected, sweep.rows(), is_complete=process.returncode == 0)
        sweep.check_interrupted(plan)
        if process.returncode == 0:  # it ended before its moment: begin another
            sweep.forget()

    _, said = (process := begin()).communicate(timeout=900)

    assert process.returncode == 0, said
    assert_among(expected, sweep.rows(), is_complete=True)
    sweep.check_ended(plan)


def assert_among(expected: dict[Run, dict[str, object]], rows: Rows, is_complete: bool) -> None:
    """Compare rows with those of runs that nobody has interrupted: all of them, or some."""
    found = {(row["experiment"], row["seed"]): row for row in present(rows)}
    for run, row in found.items():
        row.pop("cpu_s")
        assert row == expected[run], f"ENDIVE_SEED={SEED}"
    assert not is_complete or found.keys() == expected.keys()
