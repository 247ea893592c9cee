"""What every benchmark's JSON says of itself: the code, the machine, and how its samples are put together."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def commit() -> str:
    """Return the commit measured, marked if the tree has changes."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> dict[str, str | int | None]:
    """Return what the figures depend on besides the code."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def spread(samples: Sequence[float]) -> dict[str, float | list[float]]:
    """Return samples with their median and 95th percentile."""
    p95 = quantiles(samples, n=20, method="inclusive")[-1] if len(samples) > 1 else samples[0]
    return {"samples": [round(x, 4) for x in samples], "median": round(median(samples), 4), "p95": round(p95, 4)}


def save(name: str, body: Mapping[str, object], parts: Iterable[str] = ()) -> Path:
    """Write `results/<name>.json`.

    `parts` are those that were just measured; `measured` has the commit and the time of each part. The others keep
    theirs.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"name": name, "commit": commit(), "machine": machine(), **body}
    new = {part: {"commit": commit(), "time": datetime.now(UTC).isoformat(timespec="seconds")} for part in parts}
    if new:
        kept = json.loads(path.read_text(encoding="utf-8")).get("measured", {}) if path.exists() else {}
        document["measured"] = kept | new
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path
