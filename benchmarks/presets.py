"""The presets `endive` and `endive-shared` against measurements of the catalog: commits per second of n committers.

Everything but the commit costs nothing, and every committer has a table of its own, as in the measurements:

* `endive`: threads of one process with an exclusive writer, over an object store with S3's latencies (`catalog.json`).
  `prepare_ms` was fitted to 256 committers, `batches` to 4, 16 and 64 by trying 1 to 4; 1 committer is a prediction.
* `endive-shared`: processes that help each other, the production protocols in virtual time (`helping_virtual.json`).
  Nothing was fitted: every wait is a request of the protocol.
* `endive, shared writer`: threads of one process with a shared writer, whose batches cost a listing more
  (`catalog.json`). The values are those of `endive`; nothing was fitted.

`python -m benchmarks.presets` writes `results/presets.json`; the results are deterministic.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.report import RESULTS, save
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate

SECONDS, SEED = 60, 1
CONFIGURATION = """
[simulation]
duration_ms = {seconds}e3
[storage]
provider = "instant"
[storage.latency]
read = {{ median = {read_ms}, sigma = {sigma} }}
write = {{ median = {create_ms}, sigma = {sigma} }}
cas = {{ median = {create_ms}, sigma = {sigma} }}
manifest_list_read = {{ value = 0 }}
manifest_list_write = {{ value = 0 }}
manifest_file_write = {{ value = 0 }}
[catalog]
preset = "{preset}"
num_tables = {committers}
[catalog.service]
read = {{ value = 0 }}
{service}
[transaction]
arrivals = "closed"
writers = {committers}
tables.choice = "writer"
runtime = {{ value = 0 }}
operation_types = {{ fast_append = 1.0 }}
"""


@dataclass(frozen=True)
class Case:
    """Committers of one kind, and their measured rates."""

    preset: str
    service: str
    """Keys of the service that differ from the preset's."""
    source: str
    sigma: float
    measured: Mapping[int, float]
    """Number of committers to commits per second."""
    fitted: tuple[int, ...] = ()
    """Numbers of committers that values of the preset were fitted to."""


def cases() -> dict[str, Case]:
    """Return the cases by name, with the rates that are stored."""
    threads, processes = _document("catalog"), _document("helping_virtual")
    create_ms, read_ms = (threads["parameters"][name] for name in ("s3_create_ms", "s3_read_ms"))
    listed = f"work = {{ median = {create_ms + read_ms}, sigma = 0.14 }}"  # about the sum of both
    helping = {row["processes"]: row["commits_per_s"] for row in processes["rows"] if row["way"] == "helping"}
    return {
        "endive": Case("endive", "", "catalog.json", 0.14, _threads(threads, "exclusive"), (4, 16, 64, 256)),
        "endive, shared writer": Case("endive", listed, "catalog.json", 0.14, _threads(threads, "shared")),
        "endive-shared": Case("endive-shared", "", "helping_virtual.json", 0.2, helping),
    }


def _document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _threads(document: Mapping[str, Any], writer: str) -> dict[int, float]:
    wanted = {"through": "KVCatalog", "mode": "background", "writer": writer}
    rows = [row for row in document["s3"] if wanted.items() <= row.items()]
    return {row["committers"]: row["commits_per_s"] for row in rows}


def simulated(case: Case, committers: int) -> float:
    """Return the commits per second of the model."""
    parameters = _document("helping_virtual")["parameters"]
    text = CONFIGURATION.format(
        seconds=SECONDS,
        preset=case.preset,
        committers=committers,
        service=case.service,
        sigma=case.sigma,
        create_ms=parameters["create_ms"],
        read_ms=parameters["read_ms"],
    )
    return simulate(parse_configuration(text), SEED).seq / SECONDS


def rows() -> Iterator[dict[str, object]]:
    """Yield a row for each case and number of committers."""
    for name, case in cases().items():
        for committers, measured in case.measured.items():
            found = simulated(case, committers)
            yield {
                "case": name,
                "committers": committers,
                "measured_per_s": measured,
                "simulated_per_s": round(found, 1),
                "error": round(found / measured - 1, 3),
                "fitted": committers in case.fitted,
                "source": case.source,
            }


def main() -> None:
    """Compare all cases."""
    print(
        save("presets", {"parameters": {"seconds": SECONDS, "seed": SEED}, "unit": "commits/s", "rows": list(rows())})
    )


if __name__ == "__main__":
    main()
