"""Ask from Python: how much load does a configuration sustain, and does a faster store help?"""

import endive

CONFIGURATION = {
    "simulation": {"duration_ms": 600_000},
    "storage": {"provider": "s3", "profiles": "measured"},
    "transaction": {
        "cost_model": "iceberg",
        "inter_arrival": {"scale": 1_000},
        "runtime": {"median": 5_000, "sigma": 1.0},
        "operation_types": {"fast_append": 1.0},
    },
}

results = endive.run(CONFIGURATION, seeds="1..3")
committed = results.metrics["committed_per_s"]
print(f"committed {committed.mean:.2f} ± {committed.half_width:.2f} per second, {results.to_arrow().num_rows} seeds")

comparison = endive.compare(results, {**CONFIGURATION, "storage": {"provider": "s3x", "profiles": "measured"}})
print(f"S3 Express: p50 latency {comparison.ratio('latency.all.p50_ms'):.2f} times that of S3")

print(endive.capacity(CONFIGURATION, 0.95, vary={"storage.provider": ["s3", "s3x"]}, seeds="1..3", tolerance=0.05))
