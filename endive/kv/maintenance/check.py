"""Checks every object of a store: checksums, references, invariants. Reports what is wrong, and where.

A check runs beside writers: it takes a manifest and checks the objects that this manifest needs. If the manifest is
superseded meanwhile, and an object no longer exists, it starts over.
"""

from dataclasses import dataclass
from itertools import pairwise

from endive.errors import AttemptsExhaustedError, CorruptObjectError, StoreNotFoundError
from endive.kv.log.wal import WAL
from endive.kv.manifest import SortedRun, SstInfo, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import Footer, Rows, decode_sst
from endive.kv.sst.reading import LEVELS_PREFIX, LEVELS_SUFFIX, range_request, sst_path
from endive.protocol.requests import Get, List, Steps, ask
from endive.protocol.sequenced import Numbered, newest, newest_for_certain, numbers_in

ROUNDS_MAX = 5


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True)
class Report:
    """How many objects a check has read, and its findings."""

    manifest_id: int
    manifests: int
    wal_entries: int
    ssts: int
    rows: int
    garbage: int
    """SSTs that no active manifest needs: the garbage collector deletes them."""
    findings: tuple[Finding, ...]


def check_store() -> Steps[Report]:
    """Check everything that the newest manifest and the checkpoints need."""
    for _ in range(ROUNDS_MAX):
        base = yield from newest_for_certain(MANIFESTS)
        if base is None:
            raise StoreNotFoundError(MANIFESTS.prefix)
        report = yield from _check(base)
        again = yield from newest(MANIFESTS)
        if not report.findings or (again is not None and again.number == base.number):
            return report
    raise AttemptsExhaustedError(MANIFESTS.prefix, ROUNDS_MAX)


def _check(base: Numbered[StoreManifest]) -> Steps[Report]:
    manifests, findings = yield from _manifests(base)
    findings = findings + tuple(finding for manifest in manifests for finding in _run_findings(manifest))
    needed = {sst.id: sst for manifest in manifests for run in manifest.value.runs for sst in run.ssts}
    ids = sorted(needed)
    rows = 0
    for place in range(len(ids)):
        count, found = yield from _sst(needed[ids[place]])
        rows += count
        findings += found
    entries, found = yield from _wal(base.value)
    findings += found
    kept = sorted({number for manifest in manifests[1:] for number in _seen(manifest.value)} - _unread(base.value))
    for place in range(len(kept)):
        found = yield from _kept_entry(kept[place])
        findings += found
    garbage = yield from _garbage(manifests, base.value)
    return Report(base.number, len(manifests), entries + len(kept), len(ids), rows, garbage, findings)


def _manifests(base: Numbered[StoreManifest]) -> Steps[tuple[tuple[Numbered[StoreManifest], ...], tuple[Finding, ...]]]:
    """Return the active manifests, and what is wrong with reading them."""
    active: tuple[Numbered[StoreManifest], ...] = (base,)
    findings: tuple[Finding, ...] = ()
    numbers = sorted({checkpoint.manifest_id for checkpoint in base.value.checkpoints} - {base.number})
    for place in range(len(numbers)):
        path = MANIFESTS.path_of(numbers[place])
        body = yield from ask(Get(path))
        try:
            if body is None:
                findings += (Finding(path, "missing, though a checkpoint names it"),)
            else:
                active = (*active, Numbered(numbers[place], MANIFESTS.decode(path, body)))
        except CorruptObjectError as error:
            findings += (Finding(error.path, error.problem),)
    return active, findings


def _run_findings(manifest: Numbered[StoreManifest]) -> list[Finding]:
    path = MANIFESTS.path_of(manifest.number)
    findings = [Finding(path, "runs are not in the order of their levels")] if _unordered(manifest.value.runs) else []
    for run in manifest.value.runs:
        for before, after in pairwise(run.ssts):
            if before.last_key >= after.first_key:
                findings.append(Finding(path, f"SSTs {before.id} and {after.id} of one run overlap"))
    if any(sst > manifest.value.sst_id_last for sst in manifest.value.sst_ids()):
        findings.append(Finding(path, "names an SST above its own sst_id_last"))
    if manifest.value.shared_epoch > manifest.value.writer_epoch:
        findings.append(Finding(path, "shares a writer epoch that was never claimed"))
    if len(manifest.value.wal_put_ids) > manifest.value.wal_id_last_compacted:
        findings.append(Finding(path, "records more WAL entries than were compacted"))
    return findings


def _unordered(runs: tuple[SortedRun, ...]) -> bool:
    return any(newer.level > older.level for newer, older in pairwise(runs))


def _sst(sst: SstInfo) -> Steps[tuple[int, tuple[Finding, ...]]]:
    path = sst_path(sst.id)
    body = yield from ask(range_request(sst, 0, sst.size_bytes + 1))
    if body is None:
        return 0, (Finding(sst.store + path, "missing, though a manifest names it"),)
    try:
        footer, rows = decode_sst(path, body)
    except CorruptObjectError as error:
        return 0, (Finding(error.path, error.problem),)
    return len(rows.keys), tuple(Finding(path, problem) for problem in _sst_problems(sst, body, footer, rows))


def _sst_problems(sst: SstInfo, body: bytes, footer: Footer, rows: Rows) -> list[str]:
    problems = _row_problems(footer, rows)
    if len(body) != sst.size_bytes or footer.rows != sst.rows or footer.index_offset != sst.index_offset:
        problems.append("the manifest says another size, row count or index")
    if rows.keys and (rows.keys[0], rows.keys[-1]) != (sst.first_key, sst.last_key):
        problems.append("the manifest says another first or last key")
    return problems


def _row_problems(footer: Footer, rows: Rows) -> list[str]:
    problems = []
    if any(before >= after for before, after in pairwise(rows.keys)):
        problems.append("keys are not in order")
    if rows.seqs and (min(rows.seqs), max(rows.seqs)) != (footer.seq_first, footer.seq_last):
        problems.append("the footer says another range of sequence numbers")
    return problems


def _wal(manifest: StoreManifest) -> Steps[tuple[int, tuple[Finding, ...]]]:
    """Check the WAL entries that are not in the levels: their bytes, and the order of epochs and sequence numbers."""
    listing = yield from ask(List(WAL.prefix, WAL.path_of(manifest.wal_id_last_compacted)))
    numbers = numbers_in(listing, WAL.prefix, WAL.suffix)
    findings = _gap(numbers, manifest)
    epochs: tuple[tuple[int, bool], ...] = ()
    for place in range(len(numbers)):
        path = WAL.path_of(numbers[place])
        body = yield from ask(Get(path))
        if body is None:
            findings += (Finding(path, "missing, though it was listed and is not in the levels"),)
            continue
        try:
            footer, rows = decode_sst(path, body)
        except CorruptObjectError as error:
            findings += (Finding(error.path, error.problem),)
            continue
        findings += tuple(Finding(path, problem) for problem in _row_problems(footer, rows))
        if footer.epoch > manifest.writer_epoch:
            findings += (Finding(path, f"epoch {footer.epoch}, but the newest claimed is {manifest.writer_epoch}"),)
        if _is_fenced(epochs, footer.epoch, manifest.max_parallel_writes):
            findings += (Finding(path, f"a write of epoch {footer.epoch} behind a newer writer's fences"),)
        epochs = (*epochs, (footer.epoch, footer.is_fence))[-manifest.max_parallel_writes :]
    return len(numbers), findings


def _seen(manifest: StoreManifest) -> range:
    """Return the WAL entries that belong to the state of a checkpoint."""
    return range(manifest.wal_id_last_compacted + 1, manifest.wal_id_last_seen + 1)


def _unread(newest: StoreManifest) -> frozenset[int]:
    """Return the entries that are checked anyway, because they are not in the levels."""
    return frozenset(range(newest.wal_id_last_compacted + 1, newest.wal_id_last_seen + 1))


def _kept_entry(number: int) -> Steps[tuple[Finding, ...]]:
    """Check an entry that is in the levels, but that a checkpoint needs."""
    path = WAL.path_of(number)
    body = yield from ask(Get(path))
    if body is None:
        return (Finding(path, "missing, though a checkpoint needs it"),)
    try:
        footer, rows = decode_sst(path, body)
    except CorruptObjectError as error:
        return (Finding(error.path, error.problem),)
    return tuple(Finding(path, problem) for problem in _row_problems(footer, rows))


def _gap(numbers: list[int], manifest: StoreManifest) -> tuple[Finding, ...]:
    """Report a missing entry, if there is one further behind it than writes can be in flight."""
    end = manifest.wal_id_last_compacted
    while end + 1 in numbers:
        end += 1
    if not numbers or numbers[-1] <= end + manifest.max_parallel_writes:
        return ()
    return (Finding(WAL.path_of(end + 1), f"missing, though entry {numbers[-1]} exists"),)


def _is_fenced(before: tuple[tuple[int, bool], ...], epoch: int, parallel_writes: int) -> bool:
    """Whether the entries before are a whole run of a newer writer's fences."""
    return len(before) == parallel_writes and all(newer > epoch and is_fence for newer, is_fence in before)


def _garbage(manifests: tuple[Numbered[StoreManifest], ...], base: StoreManifest) -> Steps[int]:
    levels = yield from ask(List(LEVELS_PREFIX))
    used = frozenset(sst for manifest in manifests for sst in manifest.value.sst_ids())
    return sum(sst not in used and sst <= base.sst_id_last for sst in numbers_in(levels, LEVELS_PREFIX, LEVELS_SUFFIX))
