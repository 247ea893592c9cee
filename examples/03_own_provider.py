"""A storage provider of your own, beside one that comes with Endive.

The latencies are in `03_own_provider.toml`. `storage.profile_file` is relative to the configuration's directory;
here that is this file's.
"""

from endive.sim.config.configuration import parse_configuration
from endive.sim.results.summary import summarise
from endive.sim.simulation import Simulation

CONFIGURATION = """
[simulation]
duration_ms = 600_000
[storage]
provider = "rack"
profile_file = "03_own_provider.toml"
[transaction]
cost_model = "iceberg"
inter_arrival = { scale = 500 }
runtime = { median = 5_000, sigma = 1.0 }
operation_types = { fast_append = 1.0 }
"""
S3 = ["storage={ provider = 's3', profiles = 'measured' }"]

for overrides in ([], S3):
    settings = parse_configuration(CONFIGURATION, __file__, overrides)
    metrics = summarise(Simulation(settings.build(seed=1)).run().to_arrow(), settings.window)
    p99_ms = metrics.latency["all"].p99_ms
    rates = f"{metrics.offered_per_s:.2f}/s offered, {metrics.committed_per_s:.2f}/s committed"
    print(f"{settings.profile.name:5} {rates}, {metrics.success:.1%} success, p99 {p99_ms:.0f} ms")
