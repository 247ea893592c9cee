"""`endive catalog check`: consistency of the store, the records and the files."""

from dataclasses import asdict
from typing import Annotated

import typer

from endive.catalog import KVCatalog
from endive.catalog.connection import FOLDER, open_place, url_of
from endive.catalog.maintenance.check import CatalogReport
from endive.catalog.maintenance.check import check as check_catalog
from endive.catalog.maintenance.findings import Finding
from endive.cli.catalog.arguments import Endpoint, Json, Properties, Url, as_typed, opened, reach, require_lasting
from endive.cli.catalog.rendering import print_json
from endive.cli.console import output, progress_to
from endive.drivers.blocking import BlockingDriver
from endive.errors import CatalogNotFoundError, CorruptObjectError, MissingObjectError, StoreNotFoundError
from endive.kv.maintenance.check import check_store
from endive.wording import counted

FINDINGS_EXIT_CODE = 1


def check(
    url: Url,
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this table.")] = None,
    data_files: Annotated[
        bool, typer.Option("--data-files", help="Also check that every data file exists: one request for each.")
    ] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Check the store, every record and every metadata file. Prints every finding; exit code 1 if there is one.

    The store: checksums, references, order. Records: each can be read, is under its key, and refers to existing ones.
    Files: metadata files, manifest lists and manifests exist and agree with the records. Nothing is changed, and
    writers are not disturbed.

    For example:

    `endive catalog check s3://bucket/lake`
    """
    require_lasting(url, reach(endpoint, properties))
    findings = _store_findings(url, reach(endpoint, properties))
    report = CatalogReport()
    try:
        with opened(url, endpoint, properties) as catalog:
            report = _checked(catalog, name, data_files)
    except (CorruptObjectError, MissingObjectError) as error:
        findings.append(Finding(str(error), "the catalog cannot be opened, and its tables were not checked"))
    _print(findings + report.findings, report, as_json)
    if findings or report.findings:
        raise typer.Exit(FINDINGS_EXIT_CODE)


def _checked(catalog: KVCatalog, name: str | None, data_files: bool) -> CatalogReport:
    """Check the records and files, and show the progress."""
    with progress_to(1.0, "checking snapshots") as shown:
        return check_catalog(
            catalog.store, catalog.files, name, data_files, lambda done, total: shown(done / max(total, 1))
        )


def _store_findings(url: str, settings: dict[str, str]) -> list[Finding]:
    """Return the findings in the store of the catalog."""
    place = url_of(url)
    driver = BlockingDriver(open_place(f"{place}/{FOLDER}", settings))
    try:
        with as_typed(url):
            found = driver.run(check_store()).findings
    except StoreNotFoundError as error:
        raise CatalogNotFoundError(place) from error
    finally:
        driver.close()
    return [Finding(f"{FOLDER}/{one.path}", one.problem) for one in found]


def _print(findings: list[Finding], report: CatalogReport, as_json: bool) -> None:
    checked = {
        "tables": report.tables,
        "snapshots": report.snapshots,
        "manifests": report.manifests,
        "files": report.files,
    }
    if as_json:
        rows = [asdict(one) for one in findings]
        names_until_0_1 = {"faults": rows, "looked_at": checked, "leftover_rows": report.pending_deletions}
        document = {"findings": rows, "checked": checked, "pending_deletions": report.pending_deletions}
        print_json(document | names_until_0_1)
        return
    for one in findings:
        output.print(f"[red]finding:[/] {output.escape(str(one))}", soft_wrap=True)
    if report.pending_deletions:
        left = f"{counted(report.pending_deletions, 'row')} of dropped tables or expired snapshots"
        words = "left by a crash or still being deleted, which is harmless"
        output.print(f"{left}: {words}; the next `endive catalog expire` or `orphans --delete` deletes them")
    counts = ", ".join(counted(count, what.removesuffix("s")) for what, count in checked.items())
    output.print(f"checked {counts}; {counted(len(findings), 'finding')}")
