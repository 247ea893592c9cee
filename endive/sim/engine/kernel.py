"""The compiled engine's kernel: the model of `endive.sim.transaction` as a state machine over arrays.

**Why it is fast.** Between two accesses to shared state a transaction's I/O needs no event: its latencies are functions
of its own random streams, so they are drawn and added. Events are accesses to shared state only: a catalog read
completes, the store decides or answers a conditional write, a manifest list has been read.

**Why it is the same.** Time is whole nanoseconds, so sums do not depend on their order; draws depend on the transaction
and the purpose, not on the order of events; simultaneous events run in the order of their transactions' numbers. A wait
is counted when it is over; one that would end at or after the horizon is never counted. A transaction whose next wait
crosses the horizon is *cut* there: its row shows what it completed before.

**How to read it.** `advance` pops events and runs the transaction from its program counter until it waits again. The
steps have the names of the methods they stand for. Five arguments recur:

* `c`, the configuration of the transaction's class as numbers (a record of `CONFIG`; never changes);
* `g`, the shared state (a record of `SHARED`: the catalog's sequence number, the log, counters);
* `t`, the transaction (a record of `TRANSACTION`), and `d`, its tables, partitions and versions, as integers;
* `state`, the versions of tables and partitions, the lengths of manifest lists; `c.at_...` says where each begins;
* `curves`, the quantile tables one after the other, as `model.curve_of` lays them out.

All compiled code is in this one file, because Numba's cache only tracks the file of the cached function.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ONE, S2, S6, S11, S27, S30, S31 = (np.uint64(number) for number in (1, 2, 6, 11, 27, 30, 31))
S46, S51 = np.uint64(46), np.uint64(51)
HALF, BELOW_HALF = np.uint64(1 << 52), np.uint64((1 << 52) - 1)
ONE_BITS = np.uint64(1023 << 52)  # 1.0 as a float: its exponent, and no fraction
TAIL_MIN = 2.0**-39  # twice `QuantileTable.TAIL_MIN`
LOWEST_PIECE, PIECE_MASK = np.uint64((1023 - 39) << 6), np.uint64((1 << 46) - 1)
TICKS_PER_MS = 1_000_000
TICKS_PER_S = 1_000_000_000
BYTES_PER_MIB = 1024 * 1024
LINE_BYTES = 64  # size of a cache line
LONGEST = 2.0**53  # ticks: `endive.sim.latency.TICKS_MAX`
HUGE = np.int64(1 << 55)  # more than any horizon
DOUBLINGS = 12  # as `endive.sim.sums.DOUBLINGS`
NEVER = np.int64(np.iinfo(np.int64).max)
ZERO, ONCE = np.int64(0), np.int64(1)

# The constants below are NumPy integers: Numba would compile a function once for each Python integer passed to it.

# Distributions: index of `c.dist_...`. The first ones are the request kinds of `ConflictCost`, in its order.
KIND_COUNT = 9
KINDS = np.int64(KIND_COUNT)
METADATA_READ, LIST_READ, LIST_WRITE, HISTORY_READ, FILE_READ, FILE_WRITE, METADATA_WRITE, HEAD, ROOT_READ = np.arange(
    KIND_COUNT
)
ARRIVAL, THINK, RUNTIME, CATALOG_READ, MERGED = np.arange(KIND_COUNT, KIND_COUNT + 5)
CONDITIONAL = KINDS + 5  # then two distributions, success and failure, for each kind of conditional request
CAS, LOG_APPEND, COMPACT, LIST_APPEND = np.arange(4)
WORK = CONDITIONAL + 8  # of a server: its own work, then what it reads and writes of table metadata
WORK_ROWS = 3
WORK_OWN, WORK_READ, WORK_WRITE = np.arange(3)
DISTRIBUTIONS = KIND_COUNT + 5 + 8 + 3

# Streams: index of `c.roots`.
R_STORAGE, R_CATALOG, R_BACKOFF, R_CONFLICT, R_ARRIVAL, R_THINK, R_RUNTIME, R_OPERATION, R_TABLES, R_PARTITIONS = (
    np.arange(10)
)

OPERATIONS = 10  # types of `OPERATION_TYPES`
SNAPSHOT_KINDS = 3

# Costs: second index of `c.costs`.
FIRST, RETRY, LEFT, RIGHT, CHECK, PUBLISH, PER_SNAPSHOT, PER_CONCURRENT = np.arange(8)

# Purposes: index of `t.spent`.
S_READ, S_RUN, S_ATTEMPT, S_CONFLICT, S_COMMIT, S_BACKOFF = np.arange(6)

# Rows of `odds`, and of `topology`.
TABLE_SUMS, TABLE_WEIGHTS, PARTITION_SUMS, PARTITION_WEIGHTS = np.arange(4)
COUNT, BEGINS = np.arange(2)  # of each table: its partitions, the first one's number; `c.row_...` are a class's rows

# Program counters.
(
    START, READ, READ_BEGIN, READ_DONE, ATTEMPT_TOP, PREPARE, LIST_KNOWN, BESIDE, LIST_TRY, LIST_RENEWED, PREPARED,
    PUBLISHING, SWAP, COMMIT_LOOP, COND, COND_DECIDE, COND_LAND, DISCOVERED, FAILED, REFRESHED, DONE, WAITING,
    COND_SERVED, QUEUE,
) = np.arange(24)  # fmt: skip
INITIAL, REFRESH, CHECKING = np.arange(3)  # purpose of a catalog read

EXECUTING, COMMITTING, COMMITTED, ABORTED = np.arange(4)
NO_REASON, MAX_RETRIES, VALIDATION, TIMEOUT = np.arange(4)

COUNTERS = (
    "metadata_reads", "manifest_list_reads", "manifest_list_writes", "historical_ml_reads", "manifest_file_reads",
    "manifest_file_writes", "metadata_writes", "heads", "metadata_root_reads", "catalog_reads", "cas_success",
    "cas_failure", "append_physical_success", "append_physical_failure", "append_logical_success",
    "append_logical_conflict", "append_compactions_triggered", "append_compactions_completed", "discovery_reads",
    "manifest_append_physical_success", "manifest_append_physical_failure", "manifest_append_sealed_rewrite",
    "no_overlap", "real_conflicts", "false_conflicts", "stale_before_swap", "throttled_requests",
    "lock_timeouts", "append_gave_up", "delayed_requests", "batches", "announced_commits",
)  # fmt: skip
(
    C_CATALOG_READ, C_CAS_YES, C_CAS_NO, C_PHYSICAL_YES, C_PHYSICAL_NO, C_LOGICAL_YES, C_LOGICAL_NO, C_SEALED,
    C_COMPACTED, C_DISCOVERY, C_LIST_YES, C_LIST_NO, C_LIST_REWRITE, C_NO_OVERLAP, C_REAL, C_FALSE, C_STALE,
    C_THROTTLED, C_LOCK_TIMEOUT, C_GAVE_UP, C_DELAYED, C_BATCHES, C_ANNOUNCED,
) = np.arange(KIND_COUNT, len(COUNTERS))  # fmt: skip

ROW = (
    "txn_id", "t_submit", "t_runtime", "t_commit", "commit_latency", "total_latency", "n_retries", "status",
    "operation_type", "abort_reason", "manifest_list_reads", "manifest_list_writes", "manifest_file_reads",
    "manifest_file_writes", "catalog_read_ms", "per_attempt_io_ms", "conflict_io_ms", "catalog_commit_ms", "class",
    "writer", "table",
)  # fmt: skip
"""A finished transaction: columns of `rows`."""


def _record(numbers: str, **others: object) -> np.dtype[np.void]:
    """Return the type of a record: whole numbers by name, then other fields with their types and shapes."""
    fields = [(name, np.int64) for name in numbers.split()] + list(others.items())
    flat: list[Any] = [(name, *kind) if isinstance(kind, tuple) else (name, kind) for name, kind in fields]
    return np.dtype(flat, align=True)


CONFIG = _record(
    "horizon bucket_shift cls classes writers interval stagger bound at_bound at_backoff at_rate rate_count "
    "rate_period burst_every burst_length row_written row_tables row_odds class_tables any_tracked list_base "
    "parts stride by_kind any_by_kind at_kinds at_manifests at_retained d_kinds d_merged "
    "tables tables_per_txn tables_written tracked granularity groups serializable "
    "appending entry_bytes log_bytes_max log_entries_max max_retries retry_timeout refreshes_first checks_before_swap "
    "resolves_last behind behind_since_start real_action detector max_parallel load_metadata list_bytes list_growth "
    "list_varies metadata_bytes snapshot_bytes first_manifests retained_max counts_growth "
    "limited read_interval write_interval prefix_per_table at_prefix run_fixed root_reads tail "
    "has_backoff backoff_before_read ml_append appends_max list_entry_bytes list_seal_bytes keeps_entries "
    "lists_per_partition lists "
    "has_station workers batches prepare helping workers_per_table wait_max polled server_retries "
    "at_workers at_batches "
    "at_group at_table_seq at_version at_part_seq at_part_version at_length at_sealed at_in_flight at_full "
    "d_written d_parts d_seen d_start d_new d_known d_sealed d_size d_metadata versions",
    entry_read_ms=np.float64,
    probability=np.float64,
    concurrent_manifests=np.float64,
    jitter=np.float64,
    burst_factor=np.float64,
    roots=(np.uint64, (10,)),
    mix=(np.float64, (OPERATIONS,)),
    op_kind=(np.int64, (OPERATIONS,)),  # of the snapshots that the operation makes
    op_all=(np.int64, (OPERATIONS,)),  # every missed commit counts
    op_selects=(np.int64, (OPERATIONS,)),  # missed commits count by the kind of their snapshot
    op_reads=(np.int64, (OPERATIONS,)),  # snapshot kinds that a validation reads, as bits
    op_conflicts=(np.int64, (OPERATIONS,)),  # snapshot kinds that can conflict, as bits
    attempt_reads=(np.int64, (OPERATIONS, 2)),  # of the first attempt, of a retry
    attempt_writes=(np.int64, (OPERATIONS, 2)),
    op_expires=(np.int64, (OPERATIONS,)),  # it removes snapshots, and adds none
    op_merges_all=(np.int64, (OPERATIONS,)),  # it merges all manifests; a retry keeps what it has merged
    op_merges=(np.int64, (OPERATIONS,)),  # manifests from which on it merges them; 0: never
    dist_table=(np.uint64, (DISTRIBUTIONS,)),  # where its curve begins
    dist_scale=(np.float64, (DISTRIBUTIONS,)),  # ticks, at the size that is usual for the distribution
    dist_floor=(np.int64, (DISTRIBUTIONS,)),
    dist_base=(np.float64, (DISTRIBUTIONS,)),  # of a size-based distribution, in ms
    dist_per_mib=(np.float64, (DISTRIBUTIONS,)),
    dist_sized=(np.int64, (DISTRIBUTIONS,)),
    dist_fixed=(np.int64, (DISTRIBUTIONS,)),  # ticks, if every draw gives the same; else -1
    sum_table=(np.uint64, (KIND_COUNT, DOUBLINGS + 1)),  # request kind, power of two: sums of so many full batches
    sum_scale=(np.float64, (KIND_COUNT, DOUBLINGS + 1)),
    sum_floor=(np.int64, (KIND_COUNT, DOUBLINGS + 1)),
    sum_fixed=(np.int64, (KIND_COUNT, DOUBLINGS + 1)),
    by_term=(np.int64, (KIND_COUNT,)),  # request kind: convoys are drawn request by request
    costs=(np.int64, (OPERATIONS, 8, KIND_COUNT)),  # operation, which, request kind
    due=(np.int64, (OPERATIONS, 8, KIND_COUNT)),  # operation, which: the kinds that occur, ascending
    due_count=(np.int64, (OPERATIONS, 8)),
    has_beside=(np.int64, (OPERATIONS,)),
    decision=(np.float64, (4,)),  # by kind of conditional request
    per_writer=(np.float64, (4,)),
    scale_max=(np.float64, (4,)),
    contention_free=(np.int64, (4,)),
    contention_half=(np.float64, (4,)),
    limit_interval=(np.int64, (4,)),  # ticks in which a token comes back; 0: no limit
    limit_spare=(np.int64, (4,)),
    limit_refusal=(np.int64, (4,)),
    limit_throttle=(np.int64, (4,)),
    client_attempts=(np.int64, (2,)),  # of the catalog's store, of the tables'
    client_jitter=(np.float64, (2,)),
    has_work=(np.int64, (3,)),
)

SHARED = _record(
    "seq seq_max next_class next_txn next_arrival heap bucket free rows "
    "log_length log_sealed log_checkpoint log_entries",
    counters=(np.int64, (len(COUNTERS),)),
)

TRANSACTION = _record(
    "txn cls number first job pc now due submit run op status reason attempt next must_prepare refreshing reading "
    "seq start_seq new_seq started before wait kind sent travel served swap_seq "
    "ticks_yes ticks_no landed seen_offset seen_sealed offset list "
    "applied delay lost gave_up admitted asked drawn_storage drawn_catalog drawn_backoff drawn_conflict",
    key_storage=np.uint64,
    key_catalog=np.uint64,
    key_backoff=np.uint64,
    key_conflict=np.uint64,
    spent=(np.int64, (6,)),
    made=(np.int64, (KIND_COUNT,)),  # completed requests of each kind
)

ARRIVALS = _record("number time")  # of each class: its next transaction
EVENT = _record("time txn slot")
LATER = _record("time txn following")  # an event in a bucket, and the pool index of the next one there; -1: the last

# Why `advance` returned.
REACHED, POOL_FULL, ROWS_FULL, SUMS_MISSING = np.arange(4)


@intrinsic
def _as_float(typingctx: Any, bits: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.uint64), codegen


@intrinsic
def _as_bits(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.uint64))

    return types.uint64(types.float64), codegen


@intrinsic
def _borrowed(typingctx: Any, array: Any) -> Any:
    """Return an array that does not count its references: handing it to a function then costs nothing.

    The caller must keep the array alive.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        view.meminfo = context.get_constant_null(types.MemInfoPointer(types.voidptr))
        return view._getvalue()

    return array(array), codegen


@intrinsic
def _fetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Have the processor fetch a row that will soon be needed. One that was idle for long has left the caches."""
    size_bytes = getattr(array.dtype, "size", LINE_BYTES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        offset = builder.mul(args[1], builder.extract_value(view.strides, 0))
        address = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type] + [ir.IntType(32)] * 3)
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
        to_write, keep, data = (ir.Constant(ir.IntType(32), number) for number in (1, 3, 1))
        for line in range(0, size_bytes, LINE_BYTES):
            place = builder.gep(address, [builder.add(offset, ir.Constant(offset.type, line))])
            builder.call(prefetch, [place, to_write, keep, data])
        return context.get_dummy_value()

    return types.none(array, types.int64), codegen


entry = njit(cache=True, nogil=True)
"""For functions that Python calls. All others are compiled into these, without wrappers and without their own cache."""
inlined = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
apart = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=False)
"""For rare or long functions. Explicit, because the option is otherwise inherited from the caller."""


# Random numbers and latencies.


@inlined
def mix(z):
    """Return SplitMix64's hash."""
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@inlined
def child(root, number):
    """`Stream.child`: the key of a transaction's own stream."""
    return mix(root ^ mix((np.uint64(number) + ONE) * GOLDEN))


@inlined
def draw(key, number):
    """Return number `number` of a stream, from 1: an integer of 53 bits."""
    return mix(key + np.uint64(number) * GOLDEN) >> S11


@inlined
def unit(bits):
    """Return a drawn integer as a number from 0 to 1, as `Stream.random` does."""
    return np.int64(bits) * 2.0**-53


@inlined
def tail_at(bits):
    """Return twice the tail probability at a drawn integer: a float from 2**-39 to 1, as its bits.

    The float is put together from bits, not converted from an integer: most processors can do that with four numbers at
    once. Nothing is rounded.
    """
    within_half = _as_float(ONE_BITS | (bits & BELOW_HALF))  # 1.0 where the half begins, almost 2.0 where it ends
    outer_end = _as_float(ONE_BITS + (bits & HALF))  # 1.0 for the lower half, 2.0 for the upper
    return _as_bits(max(abs(within_half - outer_end), TAIL_MIN))


@inlined
def entry_at(tail, bits):
    """Return where in the curve its piece is: an octave is an exponent, and six binary digits number its pieces."""
    return ((tail >> S46) - LOWEST_PIECE) << S2 | (bits & HALF) >> S51


@inlined
def place_in_piece(tail):
    """Return how far along its piece it is, from 0 to 1: the digits after those six."""
    return _as_float(ONE_BITS | (tail & PIECE_MASK) << S6) - 1.0


@inlined
def value_at(curves, begins, bits):
    """`QuantileTable.at`, for the table that begins there."""
    tail = tail_at(bits)
    at = begins + entry_at(tail, bits)
    return curves[at] + curves[at + ONE] * place_in_piece(tail)


@inlined
def sample(c, curves, dist, scale, key, number):
    """Draw one latency."""
    if c.dist_fixed[dist] >= 0:
        return c.dist_fixed[dist]
    value = value_at(curves, c.dist_table[dist], draw(key, number)) * scale + 0.5
    return max(np.int64(np.floor(min(value, LONGEST))), c.dist_floor[dist])


@inlined
def sample_sum(c, curves, kind, power, key, number):
    """Draw the latency of `2**power` full batches of one kind."""
    if c.sum_fixed[kind, power] >= 0:
        return c.sum_fixed[kind, power]
    value = value_at(curves, c.sum_table[kind, power], draw(key, number)) * c.sum_scale[kind, power] + 0.5
    return max(np.int64(np.floor(min(value, LONGEST))), c.sum_floor[kind, power])


@inlined
def longest_of(c, curves, t, kind, scale, count):
    """Draw `count` requests of one kind, and return the longest."""
    longest = np.int64(0)
    for _ in range(count):
        t.drawn_storage += 1
        longest = max(longest, sample(c, curves, kind, scale, t.key_storage, t.drawn_storage))
    return longest


@apart
def convoy(c, curves, t, kind, scale, count):
    """`sums.total_ticks`, or `sums.terms_ticks` where the distribution changes. Stops drawing beyond any horizon."""
    batch, total = batch_of(c, kind), np.int64(0)
    full, rest = count // batch, count % batch
    if c.by_term[kind] == 1:
        while full > 0 and total < HUGE:
            total += longest_of(c, curves, t, kind, scale, batch)
            full -= 1
    for power in range(DOUBLINGS):
        if full >> power & 1:
            t.drawn_storage += 1
            total += sample_sum(c, curves, kind, power, t.key_storage, t.drawn_storage)
    full >>= DOUBLINGS
    while full > 0 and total < HUGE:
        t.drawn_storage += 1
        total += sample_sum(c, curves, kind, DOUBLINGS, t.key_storage, t.drawn_storage)
        full -= 1
    return total + longest_of(c, curves, t, kind, scale, rest)


@inlined
def total_of(c, curves, t, d, kind, count):
    """Return the ticks of `count` requests of one kind."""
    scale = request_scale(c, d, kind)
    if count > 1:
        return convoy(c, curves, t, kind, scale, count)
    t.drawn_storage += 1
    return sample(c, curves, kind, scale, t.key_storage, t.drawn_storage)


@inlined
def scale_for(c, dist, size_bytes):
    """Return the scale of a distribution for an object of that size."""
    if c.dist_sized[dist] == 0:
        return c.dist_scale[dist]
    return (c.dist_base[dist] + c.dist_per_mib[dist] * (size_bytes / BYTES_PER_MIB)) * TICKS_PER_MS


# Waiting and paying.


@inlined
def total_spent(t):
    """Return all ticks that the transaction has spent."""
    total = np.int64(0)
    for purpose in range(6):
        total += t.spent[purpose]
    return total


@inlined
def is_late(c, t):
    """`Transaction._is_late`: whether the time for retries is over."""
    return c.retry_timeout >= 0 and total_spent(t) - t.started > c.retry_timeout


@inlined
def spend(c, t, ticks, purpose):
    """Wait privately. False: the wait crosses the horizon, and the transaction is cut here."""
    if t.now + ticks >= c.horizon:
        return False
    t.now += ticks
    t.spent[purpose] += ticks
    return True


@inlined
def schedule(t, ticks, pc):
    """Wait for shared state; the wait is counted when the event comes."""
    t.wait, t.pc, t.due = ticks, pc, t.now + ticks
    return WAITING


@inlined
def tally(g, t, kind, count):
    """Count completed requests, in the run's counters and in the transaction's."""
    g.counters[kind] += count
    t.made[kind] += count


@inlined
def request_scale(c, d, kind):
    """Return the scale of a request's distribution; lists and metadata have the size that the snapshot says."""
    if c.list_varies == 1 and (kind == LIST_READ or kind == LIST_WRITE or kind == HISTORY_READ):
        return scale_for(c, kind, d[c.d_seen + c.d_size])
    if c.snapshot_bytes > 0 and (kind == METADATA_READ or kind == METADATA_WRITE):
        return scale_for(c, kind, d[c.d_seen + c.d_metadata])
    return c.dist_scale[kind]


@inlined
def batch_of(c, kind):
    """Return how many requests of a kind are made at once."""
    return c.max_parallel if kind == HISTORY_READ or kind == FILE_READ or kind == FILE_WRITE else ONCE


@inlined
def pay_kind(c, g, t, d, curves, kind, count, purpose):
    """Make `count` requests of one kind in one wait. False: the wait crosses the horizon."""
    if not spend(c, t, total_of(c, curves, t, d, kind, count), purpose):
        return False
    tally(g, t, kind, count)
    return True


@inlined
def admitted(state, at, now, ticks):
    """One side of `ObjectTable.queue`: return the ticks until the requests that need `ticks` are admitted."""
    if ticks == 0:
        return ZERO
    state[at] = max(state[at], now) + ticks
    return max(state[at] - now - TICKS_PER_S, ZERO)


@apart
def resent(c, client, wait):
    """`ClientRetries.turn_ticks`: when a throttled request of the tables' store is sent again after its turn."""
    ticks = ZERO
    for retry in range(c.client_attempts[1] - 1):
        ticks += np.int64(np.rint(client[1, retry] * TICKS_PER_MS))
        if ticks >= wait:
            return ticks
    return wait


@apart
def queue(c, t, d, state, reads, writes):
    """`Transaction._queue`: ask the store to admit so many requests."""
    prefix = ZERO
    if c.prefix_per_table == 1:
        for j in range(c.tables_per_txn - 1, -1, -1):  # ascending: the first table written is the last one found
            if d[c.d_written + j] == 1:
                prefix = d[j]
    at = c.at_prefix + 2 * prefix
    wait = admitted(state, at, t.now, reads * c.read_interval)
    wait = max(wait, admitted(state, at + 1, t.now, writes * c.write_interval))
    t.admitted, t.asked = t.now + wait, reads + writes


@apart
def be_admitted(c, g, t, client, purpose):
    """`Transaction._be_admitted`: wait until the store would have admitted what it was asked for. False: cut."""
    left = t.admitted - t.now
    if left <= 0:
        return True
    g.counters[C_DELAYED] += t.asked
    return spend(c, t, resent(c, client, left), purpose)


@inlined
def pay(c, g, t, d, curves, which, first_kind, end_kind):
    """`Requests.make` of one of the attempt's costs, for the kinds from `first_kind` to before `end_kind`."""
    for i in range(c.due_count[t.op, which]):
        kind = c.due[t.op, which, i]
        if kind < first_kind or kind >= end_kind:
            continue
        if not pay_kind(c, g, t, d, curves, kind, c.costs[t.op, which, kind], S_ATTEMPT):
            return False
    return True


@inlined
def ticks_beside(c, t, d, curves):
    """`Requests.make_beside`: two series of requests at once, as long as the longer one. Return the ticks."""
    longest = np.int64(0)
    for side in range(LEFT, RIGHT + 1):
        total = np.int64(0)
        for kind in range(KINDS):
            count = c.costs[t.op, side, kind]
            if count > 0:
                total += total_of(c, curves, t, d, kind, count)
        longest = max(longest, total)
    return longest


@inlined
def tally_beside(c, g, t):
    """Count the requests that were made side by side."""
    for side in range(LEFT, RIGHT + 1):
        for kind in range(KINDS):
            tally(g, t, kind, c.costs[t.op, side, kind])


# The workload: which tables and partitions.


@inlined
def is_taken(taken, begin, count, index):
    """Whether `index` is among the `count` items taken."""
    for j in range(begin, begin + count):
        if taken[j] == index:
            return True
    return False


@apart
def pick(sums, weights, total, taken, begin, count, bits):
    """`selectors._pick`: the item at that probability among those not taken."""
    u = unit(bits)
    if count == 0:
        target = u * sums[total - 1]
        low, high = 0, total - 1
        while low < high:
            middle = (low + high) >> 1
            if target < sums[middle]:
                high = middle
            else:
                low = middle + 1
        return low
    whole = 0.0
    for index in range(total):
        if not is_taken(taken, begin, count, index):
            whole += weights[index]
    target, so_far, last = u * whole, 0.0, 0
    for index in range(total):
        if not is_taken(taken, begin, count, index):
            so_far += weights[index]
            last = index
            if target < so_far:
                break
    return last


@apart
def choose_tables(c, t, d, odds, topology, bound):
    """Pick the tables, ascending, and mark the first ones picked as written. A writer may have a table of its own."""
    if c.bound == 1:
        d[0], d[c.d_written] = bound[c.at_bound + t.number % c.writers], 1
        return
    key, sums, weights = child(c.roots[R_TABLES], t.first), c.row_odds + TABLE_SUMS, c.row_odds + TABLE_WEIGHTS
    for j in range(c.tables_per_txn):
        d[j] = pick(odds[sums], odds[weights], c.class_tables, d, ZERO, j, draw(key, j + 1))
        d[c.d_written + j] = 1 if j < c.tables_written else 0
    for j in range(c.tables_per_txn):
        d[j] = topology[c.row_tables, d[j]]
    for j in range(1, c.tables_per_txn):
        table, flag, at = d[j], d[c.d_written + j], j
        while at > 0 and d[at - 1] > table:
            d[at], d[c.d_written + at] = d[at - 1], d[c.d_written + at - 1]
            at -= 1
        d[at], d[c.d_written + at] = table, flag


@apart
def choose_partitions(c, t, d, odds, topology):
    """Pick the partitions of each table; those picked first are written, and are kept ascending."""
    key, drawn = child(c.roots[R_PARTITIONS], t.first), 0
    sums, weights = odds[c.row_odds + PARTITION_SUMS], odds[c.row_odds + PARTITION_WEIGHTS]
    for j in range(c.tables_per_txn):
        table, begin = d[j], c.d_parts + j * c.tracked
        for p in range(c.tracked):
            drawn += 1
            d[begin + p] = pick(sums, weights, topology[COUNT, table], d, begin, p, draw(key, drawn))
        for p in range(1, topology[c.row_written, table]):
            part, at = d[begin + p], begin + p
            while at > begin and d[at - 1] > part:
                d[at] = d[at - 1]
                at -= 1
            d[at] = part


@inlined
def part_of(c, number):
    """`Workload.part_of`."""
    return number // c.stride % c.parts


@inlined
def begin(c, t, d, odds, topology, bound, curves, number, submit):
    """Make a transaction: `Workload.transaction`."""
    t.cls, t.number, t.txn = c.cls, number, number * c.classes + c.cls
    t.now, t.submit, t.pc, t.first = submit, submit, START, number - part_of(c, number) * c.stride
    if t.first == number:
        t.job = submit
    t.status, t.reason, t.attempt, t.next, t.refreshing, t.before, t.gave_up = EXECUTING, NO_REASON, 0, 0, 0, 0, 0
    t.sent = 0
    t.drawn_storage, t.drawn_catalog, t.drawn_backoff, t.drawn_conflict = 0, 0, 0, 0
    for i in range(6):
        t.spent[i] = 0
    for kind in range(KINDS):
        t.made[kind] = 0
    t.key_storage, t.key_catalog = child(c.roots[R_STORAGE], number), child(c.roots[R_CATALOG], number)
    t.key_backoff, t.key_conflict = child(c.roots[R_BACKOFF], number), child(c.roots[R_CONFLICT], number)
    t.run = sample(c, curves, RUNTIME, c.dist_scale[RUNTIME], child(c.roots[R_RUNTIME], number), ONCE)
    t.run = (t.run + c.run_fixed) // c.parts
    u = unit(draw(child(c.roots[R_OPERATION], number), ONCE))
    t.op = 0
    while t.op < OPERATIONS - 1 and u >= c.mix[t.op]:
        t.op += 1
    choose_tables(c, t, d, odds, topology, bound)
    if c.tracked > 0:
        choose_partitions(c, t, d, odds, topology)


# The catalog's state.


@inlined
def part_at(c, d, topology, j, p):
    """Return the number, among all partitions, of the transaction's partition `p` of its table `j`."""
    return topology[BEGINS, d[j]] + d[c.d_parts + j * c.tracked + p]


@inlined
def parts_touched(c, d, state, topology, j, first, end, seq):
    """Whether one of these partitions was touched after `seq`."""
    for p in range(first, end):
        if state[c.at_part_seq + part_at(c, d, topology, j, p)] > seq:
            return True
    return False


@inlined
def changed_since(c, d, state, topology, seq):
    """`has_write_overlap`, against the state as it is now: was anything watched touched after `seq`?"""
    for j in range(c.tables_per_txn):
        table, written = d[j], d[c.d_written + j] == 1
        if state[c.at_table_seq + table] <= seq or not (written or c.serializable == 1):
            continue
        if c.tracked == 0:
            return True
        end = topology[c.row_written, table] if written and c.serializable == 0 else c.tracked
        if parts_touched(c, d, state, topology, j, ZERO, end, seq):
            return True
    return False


@inlined
def conflicts(c, d, state, topology, seq):
    """`CatalogState.conflicts`: may a proposal built on snapshot `seq` not be installed?"""
    for j in range(c.tables_per_txn):
        table, of_parts = d[j], ZERO
        if d[c.d_written + j] == 1:
            of_parts = topology[c.row_written, table]
            if c.granularity == 0:
                if state[c.at_group + table * c.groups // c.tables] > seq:
                    return True
            elif c.granularity == 1 or c.tracked == 0:
                if state[c.at_table_seq + table] > seq:
                    return True
            elif parts_touched(c, d, state, topology, j, ZERO, of_parts, seq):
                return True
        elif c.serializable == 1 and c.tracked == 0 and state[c.at_table_seq + table] > seq:
            return True
        if c.serializable == 1 and parts_touched(c, d, state, topology, j, of_parts, c.tracked, seq):
            return True
    return False


@inlined
def touch(c, g, state, part):
    """Advance a partition."""
    state[c.at_part_seq + part] = g.seq
    state[c.at_part_version + part] += 1


@inlined
def install(c, g, t, d, state, topology):
    """`CatalogState.apply`."""
    g.seq += 1
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 1:
            table = d[j]
            state[c.at_group + table * c.groups // c.tables] = g.seq
            state[c.at_table_seq + table] = g.seq
            state[c.at_version + table] += 1
            if c.any_by_kind == 1 and c.op_kind[t.op] >= 0:
                state[c.at_kinds + table * SNAPSHOT_KINDS + c.op_kind[t.op]] += 1
            if c.counts_growth == 1 and c.op_expires[t.op] == 1:
                state[c.at_retained + table] = min(state[c.at_retained + table], c.retained_max)
            elif c.counts_growth == 1:
                state[c.at_retained + table] += 1
                merged = d[c.d_merged + j] if c.by_kind == 1 else ZERO
                state[c.at_manifests + table] = max(state[c.at_manifests + table] + 1 - merged, ONCE)
            for p in range(topology[c.row_written, table]):
                touch(c, g, state, part_at(c, d, topology, j, p))
            if c.tracked == 0 and c.any_tracked == 1:  # of a class that does not track partitions: all of them
                for p in range(topology[COUNT, table]):
                    touch(c, g, state, topology[BEGINS, table] + p)


@apart
def list_size(c, d, state, topology):
    """`Requests._size_bytes` of a manifest list, as of now: of several, the longest."""
    more, appended = -HUGE, ZERO
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 1 and c.lists_per_partition == 0:
            more = max(more, state[c.at_manifests + d[j]] - c.first_manifests)
        elif d[c.d_written + j] == 1:
            more = max(more, ZERO)
            for p in range(topology[c.row_written, d[j]]):
                more = max(more, state[c.at_part_version + part_at(c, d, topology, j, p)])
    if c.ml_append == 1:
        for index in range(c.lists):
            number = list_number(c, d, topology, index)
            if number >= 0:
                appended = max(appended, state[c.at_length + number])
    return max(c.list_bytes + more * c.list_growth, ZERO) + appended


@apart
def metadata_size(c, d, state):
    """`Requests._size_bytes` of table metadata, as of now: of several tables, the largest."""
    retained = -HUGE
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 1:
            retained = max(retained, state[c.at_retained + d[j]])
    return c.metadata_bytes + retained * c.snapshot_bytes


@inlined
def note_versions(c, d, state, topology, into):
    """Remember the versions of the transaction's tables and partitions, as of now."""
    for j in range(c.tables_per_txn):
        d[into + j] = state[c.at_version + d[j]]
        for p in range(c.tracked):
            at = into + c.tables_per_txn + j * c.tracked + p
            d[at] = state[c.at_part_version + part_at(c, d, topology, j, p)]
    if c.by_kind == 1:
        for j in range(c.tables_per_txn):
            at = into + c.d_kinds + j * (SNAPSHOT_KINDS + 1)
            for kind in range(SNAPSHOT_KINDS):
                d[at + kind] = state[c.at_kinds + d[j] * SNAPSHOT_KINDS + kind]
            d[at + SNAPSHOT_KINDS] = state[c.at_manifests + d[j]]
    if c.list_varies == 1:
        d[into + c.d_size] = list_size(c, d, state, topology)
    if c.snapshot_bytes > 0:
        d[into + c.d_metadata] = metadata_size(c, d, state)


@apart
def snapshots_of(c, d, state, kinds, old):
    """`_snapshots_of`: those of these kinds, from the versions noted at `old` to now."""
    total = np.int64(0)
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 1:
            for kind in range(SNAPSHOT_KINDS):
                if kinds >> kind & 1:
                    now = state[c.at_kinds + d[j] * SNAPSHOT_KINDS + kind]
                    total += now - d[old + c.d_kinds + j * (SNAPSHOT_KINDS + 1) + kind]
    return total


@inlined
def snapshots_behind(c, g, d, state, topology, old_seq, old):
    """`snapshots_behind`, from the versions noted at `old` to now."""
    if c.behind == 0:
        return g.seq - old_seq
    total = np.int64(0)
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 0:
            continue
        if c.behind == 1 or c.tracked == 0:
            total += state[c.at_version + d[j]] - d[old + j]
        else:
            for p in range(topology[c.row_written, d[j]]):
                now = state[c.at_part_version + part_at(c, d, topology, j, p)]
                total += now - d[old + c.tables_per_txn + j * c.tracked + p]
    return total


@apart
def list_number(c, d, topology, index):
    """Return the number of the transaction's manifest list `index`; -1 if it has not that many."""
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 1:
            if c.lists_per_partition == 0:
                if index == 0:
                    return d[j]
                index -= 1
            else:
                if index < topology[c.row_written, d[j]]:
                    return c.list_base + part_at(c, d, topology, j, index)
                index -= topology[c.row_written, d[j]]
    return np.int64(-1)


@apart
def note_lists(c, d, state, topology):
    """Remember the length and seal of each manifest list, as of now."""
    for index in range(c.lists):
        number = list_number(c, d, topology, index)
        if number >= 0:
            d[c.d_known + index] = state[c.at_length + number]
            d[c.d_sealed + index] = state[c.at_sealed + number]


# Conditional requests.


@inlined
def pointer_of(c, d):
    """`CatalogState.pointer`: the number of the pointer that the commit swaps."""
    if c.groups == 1:
        return ZERO
    for j in range(c.tables_per_txn):
        if d[c.d_written + j] == 1:
            return d[j] * c.groups // c.tables
    return ZERO


@inlined
def object_of(c, t, d, topology):
    """Return where the count of requests in flight to the object is kept: pointers, the checkpoint, manifest lists."""
    if t.kind == LIST_APPEND:
        return c.at_in_flight + c.groups + 1 + list_number(c, d, topology, t.list)
    return c.at_in_flight + (c.groups if t.kind == COMPACT else pointer_of(c, d))


@inlined
def draw_number(t):
    """Return the key and the next number of the stream that a conditional request draws from."""
    if t.kind == LIST_APPEND:
        t.drawn_storage += 1
        return t.key_storage, t.drawn_storage
    t.drawn_catalog += 1
    return t.key_catalog, t.drawn_catalog


@inlined
def contention(c, kind, in_flight):
    """`Contention.scale`."""
    beyond = max(in_flight - c.contention_free[kind], ZERO)
    if c.contention_half[kind] > 0.0:
        return 1.0 + (c.scale_max[kind] - 1.0) * (beyond / (beyond + c.contention_half[kind]))
    return min(1.0 + c.per_writer[kind] * beyond, c.scale_max[kind])


@inlined
def request(c, t, d, state, topology, curves):
    """`ProfiledProvider._send`: up to the moment of decision."""
    key, number = draw_number(t)
    at = object_of(c, t, d, topology)
    state[at] += 1
    scale = contention(c, t.kind, state[at])
    dist = CONDITIONAL + 2 * t.kind
    t.ticks_yes = np.int64(sample(c, curves, dist, c.dist_scale[dist], key, number) * scale)
    t.ticks_no = np.int64(sample(c, curves, dist + 1, c.dist_scale[dist + 1], key, number) * scale)
    return schedule(t, np.int64(min(t.ticks_yes, t.ticks_no) * c.decision[t.kind]), COND_DECIDE)


@inlined
def bucket_of(c, t, d, topology):
    """Return where the tick is kept at which the token bucket is full: the object's, or of a service the only one."""
    if c.has_station == 1 and t.kind == CAS:
        return c.at_full
    return c.at_full - c.at_in_flight + object_of(c, t, d, topology)


@apart
def admits(c, g, t, d, state, topology):
    """`ObjectTable.admits`: whether the object's bucket has a token."""
    at = bucket_of(c, t, d, topology)
    if state[at] - t.now <= c.limit_spare[t.kind]:
        return True
    empty = t.now + c.limit_spare[t.kind] + c.limit_interval[t.kind]
    state[at] = max(state[at], min(state[at] + c.limit_throttle[t.kind], empty))
    g.counters[C_THROTTLED] += 1
    return False


@apart
def charge(c, t, d, state, topology, yes):
    """`ObjectTable.charge`: take the tokens of a request that was decided now."""
    at = bucket_of(c, t, d, topology)
    state[at] = max(state[at], t.now) + (c.limit_interval[t.kind] if yes else c.limit_refusal[t.kind])


@apart
def send_again(c, t, client, purpose, rest):
    """A throttled request has been answered: wait, and send it again."""
    t.sent += 1
    key, number = draw_number(t)
    store = 1 if t.kind == LIST_APPEND else 0
    share = 1.0 - c.client_jitter[store] * unit(draw(key, number))
    wait = np.int64(np.rint(client[store, t.sent - 1] * share * TICKS_PER_MS))
    return COND if spend(c, t, max(rest, ZERO), purpose) and spend(c, t, wait, purpose) else WAITING


@apart
def append_to_log(c, g, t, d, state, topology):
    """`AppendCatalog._land`."""
    yes = g.log_sealed == 0 and (c.tail == 1 or g.log_length == t.offset)
    if not yes:
        g.counters[C_PHYSICAL_NO] += 1
    else:
        g.log_length += c.entry_bytes
        g.log_entries += 1
        g.counters[C_PHYSICAL_YES] += 1
        t.applied = 0 if conflicts(c, d, state, topology, t.seq) else 1
        g.counters[C_LOGICAL_YES if t.applied == 1 else C_LOGICAL_NO] += 1
        if t.applied == 1:
            install(c, g, t, d, state, topology)
        full = c.log_bytes_max > 0 and g.log_length - g.log_checkpoint > c.log_bytes_max
        if full or (c.log_entries_max > 0 and g.log_entries >= c.log_entries_max):
            g.log_sealed = 1
            g.counters[C_SEALED] += 1
    t.seen_offset = g.log_length
    return yes


@apart
def compact(g):
    """`AppendCatalog._checkpoint`."""
    if g.log_sealed == 0:
        return False
    g.log_sealed, g.log_checkpoint, g.log_entries = 0, g.log_length, 0
    g.counters[C_COMPACTED] += 1
    return True


@apart
def append_to_list(c, t, d, state, topology):
    """`Requests._land`."""
    number = list_number(c, d, topology, t.list)
    length, sealed = c.at_length + number, c.at_sealed + number
    yes = state[sealed] == 0 and state[length] == d[c.d_known + t.list]
    if yes:
        state[length] += c.list_entry_bytes
        if c.list_seal_bytes > 0 and state[length] > c.list_seal_bytes:
            state[sealed] = 1
    t.seen_offset, t.seen_sealed = state[length], state[sealed]
    return yes


@inlined
def work_part(c, t, curves, row):
    """`ProfiledProvider._work_ticks`: draw one part of the server's work, if it has that part."""
    if c.has_work[row] == 0:
        return ZERO
    t.drawn_catalog += 1
    dist = WORK + row
    return sample(c, curves, dist, c.dist_scale[dist], t.key_catalog, t.drawn_catalog)


@apart
def work_ticks(c, t, curves):
    """Draw how long the server works for one commit."""
    total = ZERO
    for row in range(WORK_ROWS):
        total += work_part(c, t, curves, row)
    return total


@apart
def entry_ticks(c, t, curves, announced):
    """`Station.entry_rows`: draw how long writing a batch takes."""
    if c.helping == 0:
        return work_ticks(c, t, curves)
    total = work_part(c, t, curves, WORK_OWN) + work_part(c, t, curves, WORK_READ)
    return total + work_part(c, t, curves, WORK_READ) if announced else total


@apart
def enter_batch(c, g, t, state, curves):
    """`Batches.enter`: join the batch that has not begun, or open one. Return the ticks until it is written."""
    at, last, prepared = c.at_batches, c.at_batches + c.batches, c.at_batches + c.batches + 1
    announced, look = c.helping == 1 and t.now < state[last], ZERO
    state[prepared] = max(t.now, state[prepared]) + c.prepare
    ready = state[prepared]
    if announced:
        g.counters[C_ANNOUNCED] += 1
        ready += work_part(c, t, curves, WORK_WRITE)
        look = work_part(c, t, curves, WORK_READ)
    if ready >= state[at]:
        g.counters[C_BATCHES] += 1
        state[at] = max(ready, state[at + 1])
        end = max(state[last], state[at] + entry_ticks(c, t, curves, announced))
        for i in range(at + 1, last):
            state[i] = state[i + 1]
        state[last] = end
    return state[last] + look - t.now


@apart
def turn(c, polls, wait):
    """`Station.turn`: when a waiting commit has its turn; -1: it has given up."""
    if c.polled > 0 and wait > 0:
        place = np.searchsorted(polls, wait)
        if place < c.polled:
            wait = polls[place]
    return np.int64(-1) if 0 <= c.wait_max < wait else wait


@apart
def enter_station(c, g, t, d, state, curves, polls):
    """`ObjectTable.enter`: return the ticks until the end of the service; -1: the commit gives up."""
    if c.batches > 0:
        return enter_batch(c, g, t, state, curves)
    if c.workers == 0:
        return work_ticks(c, t, curves)
    first = c.at_workers + (pointer_of(c, d) * c.workers if c.workers_per_table == 1 else ZERO)
    at = first
    for worker in range(first + 1, first + c.workers):
        if state[worker] < state[at]:
            at = worker
    wait = turn(c, polls, max(state[at] - t.now, ZERO))
    if wait < 0:
        g.counters[C_LOCK_TIMEOUT] += 1
        return np.int64(-1)
    state[at] = t.now + wait + work_ticks(c, t, curves)
    return state[at] - t.now


@apart
def serve(c, g, t, d, state, curves, polls):
    """`ProfiledProvider._serve`: the request is decided at the end of its service, or never if it gives up."""
    ticks = enter_station(c, g, t, d, state, curves, polls)
    if ticks >= 0:
        return schedule(t, ticks, COND_SERVED)
    t.served = c.server_retries + 1  # refused, and not served again
    return schedule(t, c.wait_max, COND_SERVED)


@inlined
def arrive(c, g, t, d, state, topology, curves, client, polls):
    """A conditional request has reached the store or the server."""
    t.travel, purpose = t.wait, S_ATTEMPT if t.kind == LIST_APPEND else S_COMMIT
    t.spent[purpose] += t.travel
    t.wait, t.served, t.swap_seq = 0, 0, t.seq
    if c.limit_interval[t.kind] > 0 and not admits(c, g, t, d, state, topology):
        if t.sent + 1 < c.client_attempts[1 if t.kind == LIST_APPEND else 0]:
            state[object_of(c, t, d, topology)] -= 1
            return send_again(c, t, client, purpose, t.ticks_no - t.travel)
        if t.kind == LOG_APPEND:
            t.seen_offset = g.log_length
        elif t.kind == LIST_APPEND:
            number = list_number(c, d, topology, t.list)
            t.seen_offset, t.seen_sealed = state[c.at_length + number], state[c.at_sealed + number]
        return answer(c, t, d, state, topology, False)
    if c.has_station == 1 and t.kind == CAS:
        if c.limit_interval[t.kind] > 0:
            charge(c, t, d, state, topology, True)
        return serve(c, g, t, d, state, curves, polls)
    return decide(c, g, t, d, state, topology)


@apart
def served(c, g, t, d, state, topology, curves, polls):
    """The service of a commit has ended: decide it, or serve it again if it lost and nothing overlaps."""
    t.spent[S_COMMIT] += t.wait
    t.wait = 0
    if t.served > c.server_retries:
        return answer(c, t, d, state, topology, False)
    if not conflicts(c, d, state, topology, t.swap_seq):
        install(c, g, t, d, state, topology)
        return answer(c, t, d, state, topology, True)
    if changed_since(c, d, state, topology, t.swap_seq) or t.served == c.server_retries:
        return answer(c, t, d, state, topology, False)
    t.swap_seq = g.seq
    t.served += 1
    return serve(c, g, t, d, state, curves, polls)


@inlined
def decide(c, g, t, d, state, topology):
    """The store decides a conditional request."""
    if t.kind == CAS:
        yes = not conflicts(c, d, state, topology, t.seq)
        if yes:
            install(c, g, t, d, state, topology)
    elif t.kind == LOG_APPEND:
        yes = append_to_log(c, g, t, d, state, topology)
    elif t.kind == COMPACT:
        yes = compact(g)
    else:
        yes = append_to_list(c, t, d, state, topology)
    return decided(c, t, d, state, topology, yes)


@inlined
def decided(c, t, d, state, topology, yes):
    """A conditional request has been decided: take its tokens, and answer it."""
    if c.limit_interval[t.kind] > 0:
        charge(c, t, d, state, topology, yes)
    return answer(c, t, d, state, topology, yes)


@inlined
def answer(c, t, d, state, topology, yes):
    """A conditional request is answered. The way back is private, unless something shared is at its end."""
    state[object_of(c, t, d, topology)] -= 1
    t.landed, t.sent = 1 if yes else 0, 0
    rest = (t.ticks_yes if yes else t.ticks_no) - t.travel
    if rest > 0 and t.kind == LOG_APPEND:  # the log is read when the answer comes
        return schedule(t, rest, COND_LAND)
    return COND_LAND if rest <= 0 or spend(c, t, rest, S_ATTEMPT if t.kind == LIST_APPEND else S_COMMIT) else WAITING


@inlined
def land(c, g, t, d, curves):
    """The answer to a conditional request has come back."""
    t.spent[S_ATTEMPT if t.kind == LIST_APPEND else S_COMMIT] += t.wait
    if t.kind == CAS:
        g.counters[C_CAS_YES if t.landed == 1 else C_CAS_NO] += 1
        if t.landed == 1:
            t.status = COMMITTED
        return DONE if t.landed == 1 else FAILED
    if t.kind == COMPACT:
        t.kind = LOG_APPEND
        return COND
    if t.kind == LOG_APPEND:
        t.offset = t.seen_offset
        if t.landed == 1:
            g.counters[C_DISCOVERY] += 1
            return read_log(c, g, t, curves, S_COMMIT, DISCOVERED)
        t.lost += 1
        if t.lost < c.appends_max and not is_late(c, t):
            return COMMIT_LOOP
        g.counters[C_GAVE_UP] += 1
        return FAILED
    g.counters[C_LIST_YES if t.landed == 1 else C_LIST_NO] += 1
    if t.landed == 1:
        t.list, t.lost = t.list + 1, 0
    else:
        d[c.d_known + t.list], d[c.d_sealed + t.list] = t.seen_offset, t.seen_sealed
        t.lost += 1
    return LIST_TRY


@inlined
def read_log(c, g, t, curves, purpose, pc):
    """`AppendCatalog._read_log`: the checkpoint, then the entries after it."""
    t.drawn_catalog += 1
    scale = scale_for(c, CATALOG_READ, g.log_entries * c.entry_bytes)
    ticks = sample(c, curves, CATALOG_READ, scale, t.key_catalog, t.drawn_catalog)
    replay_ms = g.log_entries * c.entry_read_ms
    if replay_ms == 0.0:
        return schedule(t, ticks, pc)
    if spend(c, t, ticks, purpose):
        return schedule(t, np.int64(np.rint(replay_ms * TICKS_PER_MS)), pc)
    return WAITING


# ML+: manifest lists that grow by appends.


@apart
def rewrite_list(c, g, t, d, curves):
    """Read and rewrite a sealed manifest list; another writer may be first, which is decided when the write lands."""
    size = d[c.d_seen + c.d_size]
    t.drawn_storage += 2
    ticks = sample(c, curves, LIST_READ, scale_for(c, LIST_READ, size), t.key_storage, t.drawn_storage - 1)
    if not spend(c, t, ticks, S_ATTEMPT):
        return WAITING
    tally(g, t, LIST_READ, ONCE)
    ticks = sample(c, curves, LIST_WRITE, scale_for(c, LIST_WRITE, size), t.key_storage, t.drawn_storage)
    return schedule(t, ticks, LIST_RENEWED)


@apart
def list_renewed(c, g, t, d, state, topology):
    """The rewritten list has landed: it counts if no other writer was first."""
    t.spent[S_ATTEMPT] += t.wait
    tally(g, t, LIST_WRITE, ONCE)
    number = list_number(c, d, topology, t.list)
    if state[c.at_sealed + number] == 1:
        state[c.at_sealed + number], state[c.at_length + number] = 0, c.list_entry_bytes
        g.counters[C_LIST_REWRITE] += 1
        t.list, t.lost = t.list + 1, 0
    else:
        g.counters[C_LIST_NO] += 1
        t.lost += 1
        d[c.d_known + t.list], d[c.d_sealed + t.list] = state[c.at_length + number], 0
    return LIST_TRY


@apart
def try_list(c, g, t, d, topology, curves):
    """`Requests._append_entry`: append at the offset last seen, or rewrite a list known to be sealed."""
    if t.list == c.lists or list_number(c, d, topology, t.list) < 0 or c.op_expires[t.op] == 1:
        return PREPARED
    if t.lost >= c.appends_max or (t.lost > 0 and is_late(c, t)):
        t.gave_up = 1
        return FAILED
    if d[c.d_sealed + t.list] == 1:
        return rewrite_list(c, g, t, d, curves)
    t.kind = LIST_APPEND
    return COND


# The commit loop.


@apart
def queue_conflict(c, t, d, state, missed):
    """Ask the store to admit the requests that resolve a conflict."""
    reads, writes = c.root_reads, ZERO
    for i in range(c.due_count[t.op, PER_SNAPSHOT]):
        kind = c.due[t.op, PER_SNAPSHOT, i]
        count = c.costs[t.op, PER_SNAPSHOT, kind] * missed
        count += np.int64(c.costs[t.op, PER_CONCURRENT, kind] * (missed * c.concurrent_manifests))
        if kind == LIST_WRITE or kind == FILE_WRITE or kind == METADATA_WRITE:
            writes += count
        else:
            reads += count
    queue(c, t, d, state, reads, writes)


@inlined
def refresh(c, g, t, d, state, topology, curves, client):
    """`_refresh`, from the catalog read on. False: cut."""
    since, seen = (t.start_seq, c.d_start) if t.refreshing == 1 else (t.seq, c.d_seen)
    overlap = changed_since(c, d, state, topology, since)
    missed, can_conflict = np.int64(0), c.op_all[t.op] == 1
    if overlap and c.op_selects[t.op] == 1:
        missed = snapshots_of(c, d, state, c.op_reads[t.op], c.d_start)
        can_conflict = snapshots_of(c, d, state, c.op_conflicts[t.op], seen) > 0
    elif overlap and c.behind_since_start == 1:
        missed = snapshots_behind(c, g, d, state, topology, t.start_seq, c.d_start)
    elif overlap:
        missed = snapshots_behind(c, g, d, state, topology, since, seen)
    if not overlap and since != g.seq:
        g.counters[C_NO_OVERLAP] += 1
    t.seq = g.seq
    note_versions(c, d, state, topology, c.d_seen)
    t.must_prepare = 0
    if not overlap:
        return True
    if c.limited == 1:
        queue_conflict(c, t, d, state, missed)
    for i in range(c.due_count[t.op, PER_SNAPSHOT]):
        kind = c.due[t.op, PER_SNAPSHOT, i]
        count = c.costs[t.op, PER_SNAPSHOT, kind] * missed
        count += np.int64(c.costs[t.op, PER_CONCURRENT, kind] * (missed * c.concurrent_manifests))
        if count > 0 and not pay_kind(c, g, t, d, curves, kind, count, S_CONFLICT):
            return False
    if c.root_reads > 0 and not pay_kind(c, g, t, d, curves, ROOT_READ, c.root_reads, S_CONFLICT):
        return False
    if c.limited == 1 and not be_admitted(c, g, t, client, S_CONFLICT):
        return False
    if can_conflict and is_real(c, t):
        g.counters[C_REAL] += 1
        t.must_prepare = 1
        return resolve(c, g, t, d, curves)
    g.counters[C_FALSE] += 1
    t.must_prepare = 0 if c.ml_append == 1 and c.keeps_entries == 1 else 1
    return True


@inlined
def is_real(c, t):
    """`ConflictDetector.is_real_conflict`, once an overlap is established."""
    if c.detector == 1:
        return True
    t.drawn_conflict += 1
    return unit(draw(t.key_conflict, t.drawn_conflict)) < c.probability


@apart
def resolve(c, g, t, d, curves):
    """`_resolve_real_conflict`: abort, merge or restart. False: cut."""
    if c.real_action == 0:
        t.reason = VALIDATION
        return True
    if c.real_action == 2:
        return spend(c, t, t.run, S_RUN)
    t.drawn_conflict += 1
    sampled = sample(c, curves, MERGED, c.dist_scale[MERGED], t.key_conflict, t.drawn_conflict)
    count = max(np.int64(1), np.int64(np.rint(sampled / TICKS_PER_MS)))
    reads = pay_kind(c, g, t, d, curves, FILE_READ, count, S_CONFLICT)
    return reads and pay_kind(c, g, t, d, curves, FILE_WRITE, count, S_CONFLICT)


@inlined
def started(c, g, t, d, state, topology, curves):
    """The first catalog read has landed: take the snapshot, then wait for the transaction's runtime."""
    t.seq = g.seq
    note_versions(c, d, state, topology, c.d_seen)
    if t.first == t.number:  # the other parts of a job keep its start
        t.start_seq = g.seq
        note_versions(c, d, state, topology, c.d_start)
    if c.load_metadata == 1 and not pay_kind(c, g, t, d, curves, METADATA_READ, c.tables_per_txn, S_READ):
        return WAITING
    t.before = t.spent[S_READ]
    if not spend(c, t, t.run, S_RUN):
        return WAITING
    t.status, t.must_prepare, t.started = COMMITTING, 1, total_spent(t)
    if c.refreshes_first == 1:
        t.refreshing, t.reading = 1, REFRESH
        return READ
    return ATTEMPT_TOP


@inlined
def checked(c, g, t, d, state, topology, curves):
    """`_is_current`: the catalog has been read once more before the swap."""
    moved = changed_since(c, d, state, topology, t.seq)
    t.new_seq = g.seq
    note_versions(c, d, state, topology, c.d_new)
    if not pay(c, g, t, d, curves, CHECK, ZERO, KINDS):
        return WAITING
    if moved:
        g.counters[C_STALE] += 1
        return FAILED
    t.seq = t.new_seq
    for i in range(c.versions):
        d[c.d_seen + i] = d[c.d_new + i]
    return PUBLISHING


@inlined
def attempt(c, t):
    """Top of the commit loop."""
    if t.reason == NO_REASON and t.next > 0 and is_late(c, t):
        t.reason = TIMEOUT
    if t.reason != NO_REASON:
        return DONE
    t.attempt, t.refreshing = t.next, 0
    if t.must_prepare == 1:
        t.gave_up = 0
    if t.must_prepare == 0:
        return SWAP
    return schedule(t, ZERO, QUEUE) if c.limited == 1 else PREPARE


@apart
def queue_attempt(c, t, d, state):
    """Ask the store to admit the requests of an attempt."""
    which = 0 if t.attempt == 0 else 1
    reads, writes = c.attempt_reads[t.op, which], c.attempt_writes[t.op, which]
    if c.by_kind == 1:
        merged_reads, merged_writes = merging(c, t, d)
        reads, writes = reads + merged_reads, writes + merged_writes
    queue(c, t, d, state, reads, writes)
    return PREPARE


@inlined
def fail(c, t, backoff):
    """`_before_retry`, up to the catalog read."""
    last = t.attempt == c.max_retries
    if last and c.resolves_last == 0:
        t.reason = MAX_RETRIES
        return DONE
    t.delay, t.reading = 0, REFRESH
    if not last and c.has_backoff == 1:
        t.drawn_backoff += 1
        u = unit(draw(t.key_backoff, t.drawn_backoff))
        t.delay = np.int64(np.rint(backoff[c.at_backoff + t.attempt] * (1.0 + c.jitter * u) * TICKS_PER_MS))
        if c.backoff_before_read == 1 and not spend(c, t, t.delay, S_BACKOFF):
            return WAITING
    return READ


@inlined
def refreshed(c, t):
    """The intervening commits are known: back off if configured after the read, and try again."""
    if t.refreshing == 1:
        t.must_prepare = 1
        return ATTEMPT_TOP
    if t.gave_up == 1:
        t.must_prepare = 1
    last = t.attempt == c.max_retries
    waits = c.has_backoff == 1 and c.backoff_before_read == 0 and not last and t.reason == NO_REASON
    if waits and not spend(c, t, t.delay, S_BACKOFF):
        return WAITING
    if last and t.reason == NO_REASON:
        t.reason = MAX_RETRIES
    t.next = t.attempt + 1
    return DONE if last else ATTEMPT_TOP


@inlined
def publish(c, g, t, d, curves, client):
    """The end of `_prepare`: the requests after which only the swap is left."""
    if not pay(c, g, t, d, curves, PUBLISH, ZERO, KINDS):
        return WAITING
    return SWAP if c.limited == 0 or be_admitted(c, g, t, client, S_ATTEMPT) else WAITING


@apart
def prepare_lists(c, g, t, d, state, topology, curves, pc):
    """`_prepare` under ML+: the transaction knows the lists as of its last read."""
    which = FIRST if t.attempt == 0 else RETRY
    if pc == PREPARE:
        if not pay(c, g, t, d, curves, which, ZERO, LIST_WRITE):
            return WAITING
        return schedule(t, ZERO, LIST_KNOWN)
    if pc == LIST_KNOWN:
        if c.costs[t.op, which, LIST_READ] > 0:
            note_lists(c, d, state, topology)
        if not pay(c, g, t, d, curves, which, LIST_WRITE, KINDS):
            return WAITING
        t.list, t.lost = 0, 0
        if c.has_beside[t.op] == 1:
            return schedule(t, ticks_beside(c, t, d, curves), BESIDE)
    else:
        t.spent[S_ATTEMPT] += t.wait
        tally_beside(c, g, t)
        note_lists(c, d, state, topology)
    return LIST_TRY if c.by_kind == 0 or merge_manifests(c, g, t, d, curves) else WAITING


@inlined
def merged_of(c, t, d, j):
    """Return how many manifests of its table `j` the attempt merges, its own not counted; -1: it merges none."""
    if d[c.d_written + j] == 0:
        return np.int64(-1)
    count = d[c.d_seen + c.d_kinds + j * (SNAPSHOT_KINDS + 1) + SNAPSHOT_KINDS]
    if c.op_merges_all[t.op] == 1:
        before = d[c.d_merged + j] if t.attempt > 0 else ZERO
        return np.int64(-1) if 0 < before <= count else count
    return count if 0 < c.op_merges[t.op] <= count + 1 else np.int64(-1)


@apart
def merging(c, t, d):
    """`_merging`, from the manifests that the snapshot has: return its reads and writes."""
    reads, writes, own = ZERO, ZERO, ZERO if c.op_merges_all[t.op] == 1 else ONCE
    for j in range(c.tables_per_txn):
        merged = merged_of(c, t, d, j)
        if merged >= 0:
            reads, writes = reads + merged + own, writes + 1
    return reads, writes


@apart
def merge_manifests(c, g, t, d, curves):
    """Make the requests of `_merging`, and note what is merged. False: cut."""
    reads, writes = merging(c, t, d)
    for j in range(c.tables_per_txn):
        merged = merged_of(c, t, d, j)
        if merged >= 0 or t.attempt == 0 or c.op_merges_all[t.op] == 0:
            d[c.d_merged + j] = max(merged, ZERO)
    if writes == 0:
        return True
    paid = reads == 0 or pay_kind(c, g, t, d, curves, FILE_READ, reads, S_ATTEMPT)
    return paid and pay_kind(c, g, t, d, curves, FILE_WRITE, writes, S_ATTEMPT)


@inlined
def prepare(c, g, t, d, curves):
    """`_prepare` where manifest lists are rewritten: nothing of it is shared."""
    if not pay(c, g, t, d, curves, FIRST if t.attempt == 0 else RETRY, ZERO, KINDS):
        return WAITING
    if c.has_beside[t.op] == 1:
        if not spend(c, t, ticks_beside(c, t, d, curves), S_ATTEMPT):
            return WAITING
        tally_beside(c, g, t)
    return PREPARED if c.by_kind == 0 or merge_manifests(c, g, t, d, curves) else WAITING


@inlined
def read_catalog(c, g, t, curves, now):
    """`Catalog.read`. The entries of a log are counted when the read begins, so the event must be current."""
    if c.appending == 0:
        t.drawn_catalog += 1
        dist = CATALOG_READ
        return schedule(t, sample(c, curves, dist, c.dist_scale[dist], t.key_catalog, t.drawn_catalog), READ_DONE)
    if t.now > now:
        return schedule(t, ZERO, READ_BEGIN)
    return read_log(c, g, t, curves, S_READ, READ_DONE)


@inlined
def catalog_read(c, g, t, d, state, topology, curves, client):
    """A catalog read has landed."""
    t.spent[S_READ] += t.wait
    t.offset = g.log_length
    g.counters[C_CATALOG_READ] += 1
    if t.reading == INITIAL:
        return started(c, g, t, d, state, topology, curves)
    if t.reading == CHECKING:
        return checked(c, g, t, d, state, topology, curves)
    return REFRESHED if refresh(c, g, t, d, state, topology, curves, client) else WAITING


@inlined
def discovered(t):
    """`AppendCatalog.commit` has read whether its intention was applied."""
    t.spent[S_COMMIT] += t.wait
    if t.applied == 1:
        t.status = COMMITTED
    return DONE if t.applied == 1 else FAILED


@inlined
def begin_request(c, t, d, state, topology, curves, now):
    """Send a conditional request; where requests slow each other down, not before its time has come."""
    if c.scale_max[t.kind] > 1.0 and t.now > now:
        return schedule(t, ZERO, COND)
    return request(c, t, d, state, topology, curves)


@inlined
def run_steps(c, g, t, d, state, topology, curves, backoff, client, polls, pc, now):
    """Run a transaction from step `pc`; return the next step, WAITING (for an event, or cut) or DONE.

    The steps stand in the order in which they usually follow each other, so one pass usually does.
    """
    if pc == COND_DECIDE:
        pc = arrive(c, g, t, d, state, topology, curves, client, polls)
    if pc == COND_SERVED:
        pc = served(c, g, t, d, state, topology, curves, polls)
    if pc == COND_LAND:
        pc = land(c, g, t, d, curves)
    if pc == DISCOVERED:
        pc = discovered(t)
    if pc == FAILED:
        pc = fail(c, t, backoff)
    if pc == START:
        t.reading = INITIAL
        pc = READ
    if pc == READ_DONE:
        pc = catalog_read(c, g, t, d, state, topology, curves, client)
    if pc == REFRESHED:
        pc = refreshed(c, t)
    if pc == ATTEMPT_TOP:
        pc = attempt(c, t)
    if pc == QUEUE:
        pc = queue_attempt(c, t, d, state)
    if pc == PREPARE and c.ml_append == 0:
        pc = prepare(c, g, t, d, curves)
    if pc == PREPARE or pc == LIST_KNOWN or pc == BESIDE:
        pc = prepare_lists(c, g, t, d, state, topology, curves, pc)
    if pc == LIST_RENEWED:
        pc = list_renewed(c, g, t, d, state, topology)
    if pc == LIST_TRY:
        pc = try_list(c, g, t, d, topology, curves)
    if pc == PREPARED:
        t.reading = CHECKING
        pc = READ if c.checks_before_swap == 1 else PUBLISHING
    if pc == READ or pc == READ_BEGIN:
        pc = read_catalog(c, g, t, curves, now)
    if pc == PUBLISHING:
        pc = publish(c, g, t, d, curves, client)
    if pc == SWAP:
        t.lost, t.kind = 0, CAS
        pc = schedule(t, ZERO, COMMIT_LOOP) if c.appending == 1 else COND
    if pc == COMMIT_LOOP:
        t.kind = COMPACT if g.log_sealed == 1 else LOG_APPEND
        pc = COND
    if pc == COND:
        pc = begin_request(c, t, d, state, topology, curves, now)
    return pc


# Events: those of the present bucket of time in a heap, by time and transaction, later ones in a list for each bucket.
# Thousands of transactions run for minutes; the heap holds only the few that are due in the current bucket.


@inlined
def precedes(heap, one, time, txn):
    """Whether an entry comes before that time and transaction. No branch: which way it goes cannot be foretold."""
    return (heap[one].time < time) | ((heap[one].time == time) & (heap[one].txn < txn))


@inlined
def push(heap, at, time, txn, slot):
    """Enter an event at the empty place `at`, or above it."""
    while at > 0:
        up = (at - 1) >> 1
        if precedes(heap, up, time, txn):
            break
        heap[at] = heap[up]
        at = up
    heap[at].time, heap[at].txn, heap[at].slot = time, txn, slot


@inlined
def pop(heap, size):
    """Remove the first entry of `size`; the caller has read it.

    The gap moves down to the last level, and the last entry goes there: it belongs low, so it hardly rises.
    """
    last, at, down = size - 1, 0, 1
    while down + 1 < last:
        down += precedes(heap, down + 1, heap[down].time, heap[down].txn)
        heap[at] = heap[down]
        at, down = down, 2 * down + 1
    if down < last:
        heap[at] = heap[down]
        at = down
    push(heap, at, heap[last].time, heap[last].txn, heap[last].slot)


@inlined
def enter(c, g, t, s, heap, calendar, later):
    """Enter the transaction's event: in the heap if it is due in the present bucket, else in its own bucket."""
    bucket = t.due >> c.bucket_shift
    if bucket <= g.bucket:
        push(heap, g.heap, t.due, t.txn, s)
        g.heap += 1
    else:
        later[s].time, later[s].txn, later[s].following = t.due, t.txn, calendar[bucket]
        calendar[bucket] = s


@inlined
def turn_pages(c, g, heap, calendar, later, pool, details):
    """Move on to the first bucket that has an event, but not past the next arrival."""
    while g.heap == 0 and g.bucket + 1 < calendar.shape[0] and (g.bucket + 1) << c.bucket_shift <= g.next_arrival:
        g.bucket += 1
        s = calendar[g.bucket]
        while s >= 0:
            _fetch(pool, s)
            _fetch(details, s)
            push(heap, g.heap, later[s].time, later[s].txn, s)
            g.heap += 1
            s = later[s].following


@inlined
def record(c, t, d, row):
    """Write the transaction's row: `Transaction.result`."""
    total = total_spent(t)
    row[0], row[1], row[2] = t.txn, t.submit, t.run
    row[3] = t.submit + total if t.status == COMMITTED else -TICKS_PER_MS
    row[4] = 0 if t.status == EXECUTING else total - t.before - t.spent[S_RUN]
    row[5], row[6], row[7], row[8], row[9] = total, t.attempt, t.status, t.op, t.reason
    row[10], row[11] = t.made[LIST_READ] + t.made[HISTORY_READ], t.made[LIST_WRITE]
    row[12], row[13] = t.made[FILE_READ], t.made[FILE_WRITE]
    row[14], row[15], row[16], row[17] = t.spent[S_READ], t.spent[S_ATTEMPT], t.spent[S_CONFLICT], t.spent[S_COMMIT]
    row[18], row[19], row[20] = t.cls, t.number % c.writers if c.writers > 0 else -1, d[0]
    for j in range(c.tables_per_txn - 1, -1, -1):  # ascending: the first table written is the last one found
        if d[c.d_written + j] == 1:
            row[20] = d[j]


# Arrivals.


@apart
def rate_after(c, rates, now, wait):
    """`Rate.after`."""
    remaining = np.float64(wait)
    while now < c.horizon:
        begins = now - now % c.rate_period
        part = (now - begins) * c.rate_count // c.rate_period
        end = begins + ((part + 1) * c.rate_period + c.rate_count - 1) // c.rate_count
        factor = rates[c.at_rate + part]
        if c.burst_every > 0:
            since = now % c.burst_every
            if since < c.burst_length:
                factor *= c.burst_factor
                end = min(end, now - since + c.burst_length)
            else:
                end = min(end, now - since + c.burst_every)
        passing = (end - now) * factor
        if remaining < passing:
            return now + np.int64(np.rint(remaining / factor))
        remaining -= passing
        now = end
    return now


@inlined
def start_of(c, writer):
    """`ClosedLoop.start_ticks`, in terms that do not overflow."""
    return c.stagger // c.writers * writer + c.stagger % c.writers * writer // c.writers


@inlined
def wait_of_writer(c, t, curves):
    """`Workload.next_ms`: how long a writer waits when its transaction has ended."""
    if c.interval == 0:
        return sample(c, curves, THINK, c.dist_scale[THINK], child(c.roots[R_THINK], t.number), ONCE)
    first = start_of(c, t.number % c.writers)
    return max(first + ((t.job - first) // c.interval + 1) * c.interval - t.now, ZERO)


@inlined
def arrival_after(c, curves, rates, number, after):
    """Return when a class's transaction `number` arrives, after the one before it. Writers have one arrival each."""
    if c.writers > 0:
        return start_of(c, number) if number < c.writers else NEVER
    wait = sample(c, curves, ARRIVAL, c.dist_scale[ARRIVAL], child(c.roots[R_ARRIVAL], number), ONCE)
    return rate_after(c, rates, after, wait) if c.rate_count > 0 else after + wait


@inlined
def first_number(c, arrival):
    """Return the number of the first transaction of an arrival."""
    return arrival if c.writers > 0 else arrival * c.parts


@inlined
def choose_arrival(config, g, arrivals):
    """Find the next arrival of all classes."""
    classes = arrivals.shape[0]
    g.next_arrival = NEVER
    for cls in range(classes):
        time, txn = arrivals[cls].time, first_number(config[cls], arrivals[cls].number) * classes + cls
        if cls == 0 or time < g.next_arrival or (time == g.next_arrival and txn < g.next_txn):
            g.next_class, g.next_txn, g.next_arrival = cls, txn, time


@entry
def first_arrivals(config, shared, arrivals, curves, rates):
    """Find the first arrival of each class."""
    for cls in range(arrivals.shape[0]):
        arrivals[cls].number, arrivals[cls].time = 0, arrival_after(config[cls], curves, rates, ZERO, ZERO)
    choose_arrival(config, shared[0], arrivals)


@entry
def advance(
    config, shared, arrivals, heap, calendar, later, pool, details, free, state, topology, odds, bound, curves, rates,
    backoff, client, polls, rows, until
):  # fmt: skip
    """Run until the next event would be at `until` or later, or until there is no room; return why."""
    c, g, heap, pool, details = config[0], shared[0], _borrowed(heap), _borrowed(pool), _borrowed(details)
    config, arrivals, bound, rates = _borrowed(config), _borrowed(arrivals), _borrowed(bound), _borrowed(rates)
    free, state, rows, backoff = _borrowed(free), _borrowed(state), _borrowed(rows), _borrowed(backoff)
    client, polls = _borrowed(client), _borrowed(polls)
    topology, odds, curves, calendar = _borrowed(topology), _borrowed(odds), _borrowed(curves), _borrowed(calendar)
    later = _borrowed(later)
    while True:
        if g.free == 0:
            return POOL_FULL
        if g.rows >= rows.shape[0]:
            return ROWS_FULL
        if g.seq >= g.seq_max:  # longer convoys than there are tables for are possible from here on
            return SUMS_MISSING
        turn_pages(c, g, heap, calendar, later, pool, details)
        arrives = g.heap == 0 or not precedes(heap, ZERO, g.next_arrival, g.next_txn)
        now = g.next_arrival if arrives else heap[0].time
        if now >= until:
            return REACHED
        if arrives:
            g.free -= 1
            s = free[g.free]
            t, d, c, first = pool[s], details[s], config[g.next_class], arrivals[g.next_class]
            begin(c, t, d, odds, topology, bound, curves, first_number(c, first.number), now)
            first.number += 1
            first.time = arrival_after(c, curves, rates, first.number, now)
            choose_arrival(config, g, arrivals)
        else:
            s = heap[0].slot
            t, d = pool[s], details[s]
            c = config[t.cls]
            pop(heap, g.heap)
            g.heap -= 1
            t.now = now
            if t.pc == START:  # a writer's next transaction, or the next part of a job
                begin(c, t, d, odds, topology, bound, curves, t.number + c.stride, now)
        pc = t.pc
        while pc != WAITING and pc != DONE:
            t.due = NEVER
            pc = run_steps(c, g, t, d, state, topology, curves, backoff, client, polls, pc, now)
        if pc == DONE:
            t.status = max(t.status, COMMITTED) if t.reason == NO_REASON else ABORTED
            record(c, t, d, rows[g.rows])
            g.rows += 1
            t.due = NEVER
            if part_of(c, t.number) + 1 < c.parts:
                schedule(t, ZERO, START)
            elif c.writers == 0:
                free[g.free] = s
                g.free += 1
            else:
                schedule(t, wait_of_writer(c, t, curves), START)
        if t.due < c.horizon:
            enter(c, g, t, s, heap, calendar, later)


@entry
def flush(config, shared, pool, details, rows):
    """Write the rows of the transactions in flight. The caller has made room for them."""
    g = shared[0]
    for s in range(pool.shape[0]):
        if pool[s].status < COMMITTED:
            record(config[pool[s].cls], pool[s], details[s], rows[g.rows])
            g.rows += 1
