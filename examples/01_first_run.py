"""Run one configuration with one seed, and read its figures.

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
figures = summarise(statistics.to_arrow(), settings.window)  # without the first and the last quarter

print(f"transactions   {figures.transactions}, {figures.unfinished} of them in flight at the end")
print(f"offered        {figures.offered_per_s:.2f}/s")
print(f"committed      {figures.committed_per_s:.2f}/s")
print(f"success        {figures.success:.1%}")
print(f"retries        {figures.retries_mean:.2f} per transaction")
print(f"p50, p99       {figures.latency['all'].p50_ms:.0f} ms, {figures.latency['all'].p99_ms:.0f} ms")
for purpose, mean_ms in figures.time_ms.items():
    print(f"  {purpose:15}{mean_ms:7.1f} ms")
