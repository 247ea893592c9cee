"""Run one configuration with one seed, and read its metrics.

One table on S3, fast appends only, for a quarter of an hour of virtual time.
"""

from pathlib import Path

from endive.sim.config.configuration import load_configuration
from endive.sim.results.summary import summarise
from endive.sim.simulation import Simulation

FILE = Path(__file__).parent.parent / "configs" / "fast_append_s3.toml"
SHORTER = ["simulation.duration_ms=900_000", "transaction.runtime={ median = 10_000, sigma = 1.0 }"]

settings = load_configuration(str(FILE), SHORTER)  # the same as --set on the command line
statistics = Simulation(settings.build(seed=1)).run()
metrics = summarise(statistics.to_arrow(), settings.window)  # without the first and the last quarter

print(f"transactions   {metrics.transactions}, {metrics.unfinished} of them in flight at the end")
print(f"offered        {metrics.offered_per_s:.2f}/s")
print(f"committed      {metrics.committed_per_s:.2f}/s")
print(f"success        {metrics.success:.1%}")
print(f"retries        {metrics.retries_mean:.2f} per transaction")
print(f"p50, p99       {metrics.latency['all'].p50_ms:.0f} ms, {metrics.latency['all'].p99_ms:.0f} ms")
for purpose, mean_ms in metrics.time_ms.items():
    print(f"  {purpose:15}{mean_ms:7.1f} ms")
