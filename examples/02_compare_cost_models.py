"""The same transactions, committed as three libraries would commit them.

A seed gives every cost model the same arrivals, the same work and the same luck (common random numbers), so what
differs between the lines is due to the requests that each model makes.
"""

from endive.sim.config.configuration import parse_configuration
from endive.sim.results.summary import summarise
from endive.sim.simulation import Simulation

CONFIGURATION = """
[simulation]
duration_ms = 600_000
[storage]
provider = "s3"
profiles = "measured"
[transaction]
inter_arrival = { scale = 1_000 }
runtime = { median = 5_000, sigma = 1.0 }
operation_types = { fast_append = 0.9, validated_overwrite = 0.1 }
"""

print("cost model   committed  success  retries   p50 ms   p99 ms")
for model in ("spec", "iceberg", "pyiceberg"):
    settings = parse_configuration(CONFIGURATION, overrides=[f"transaction.cost_model={model}"])
    metrics = summarise(Simulation(settings.build(seed=1)).run().to_arrow(), settings.window)
    latency = metrics.latency["all"]
    print(
        f"{model:12}{metrics.committed_per_s:8.2f}/s{metrics.success:9.1%}{metrics.retries_mean:9.2f}"
        f"{latency.p50_ms:9.0f}{latency.p99_ms:9.0f}"
    )
