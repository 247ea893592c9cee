"""`endive catalog check`: is everything there, and does it agree?"""

from dataclasses import asdict
from typing import Annotated

import typer

from endive.catalog.connection import FOLDER, open_place, url_of
from endive.catalog.maintenance.check import CatalogReport
from endive.catalog.maintenance.check import check as check_catalog
from endive.catalog.maintenance.row_check import Finding
from endive.cli.catalog.opening import Endpoint, Json, Properties, Url, as_typed, opened, reach, require_lasting
from endive.cli.catalog.rendering import print_json
from endive.cli.console import output
from endive.drivers.blocking import BlockingDriver
from endive.errors import CatalogNotFoundError, CorruptObjectError, MissingObjectError, StoreNotFoundError
from endive.kv.maintenance.check import check_store
from endive.wording import counted

FAULTS_FOUND = 1


def check(
    url: Url,
    name: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this table.")] = None,
    data_files: Annotated[
        bool, typer.Option("--data-files", help="Also look whether every data file is there: a request for each.")
    ] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Look at the store, every record and every metadata file; say what is wrong where. Exit code 1 if something is.

    The store: checksums, references, order. Records: each can be read, is where it belongs, and names what is there.
    Files: metadata files, manifest lists and manifests are there, and say what the records say. Nothing is changed,
    and writers are not disturbed.

    For example:

    `endive catalog check s3://bucket/lake`
    """
    require_lasting(url, reach(endpoint, properties))
    faults = _store_faults(url, reach(endpoint, properties))
    report = CatalogReport()
    try:
        with opened(url, endpoint, properties) as catalog:
            report = check_catalog(catalog.store, catalog.files, name, data_files)
    except (CorruptObjectError, MissingObjectError) as error:
        faults.append(Finding(str(error), "the catalog cannot be opened, and its tables were not looked at"))
    _print(faults + report.findings, report, as_json)
    if faults or report.findings:
        raise typer.Exit(FAULTS_FOUND)


def _store_faults(url: str, settings: dict[str, str]) -> list[Finding]:
    """Return what is wrong with the store below the catalog."""
    place = url_of(url)
    driver = BlockingDriver(open_place(f"{place}/{FOLDER}", settings))
    try:
        with as_typed(url):
            found = driver.run(check_store()).findings
    except StoreNotFoundError as error:
        raise CatalogNotFoundError(place) from error
    finally:
        driver.close()
    return [Finding(f"{FOLDER}/{fault.path}", fault.problem) for fault in found]


def _print(faults: list[Finding], report: CatalogReport, as_json: bool) -> None:
    figures = {
        "tables": report.tables,
        "snapshots": report.snapshots,
        "manifests": report.manifests,
        "files": report.files,
    }
    if as_json:
        document = {"faults": [asdict(fault) for fault in faults], "looked_at": figures}
        print_json(document | {"leftover_rows": report.leftovers})
        return
    for fault in faults:
        output.print(f"[red]fault:[/] {output.escape(str(fault))}", soft_wrap=True)
    looked_at = ", ".join(counted(count, what.removesuffix("s")) for what, count in figures.items())
    if report.leftovers:
        rows = f"{counted(report.leftovers, 'row')} of dropped tables or expired snapshots"
        words = "left by a crash or still being cleared, which is harmless"
        output.print(f"{rows}: {words}; the next `endive catalog expire` or `orphans --delete` clears them")
    output.print(f"looked at {looked_at}; {counted(len(faults), 'finding')}")
