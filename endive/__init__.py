"""Endive: how many commits an Iceberg table takes on object storage, and the catalog that takes them.

The layers, bottom first; imports go down, never up:

* `wording`, `errors`, `rng`, `timing`, `files`: what everything else is built on.
* `sim`: the simulator of Iceberg's optimistic concurrency control.
* `pipeline`: sweeps of simulations on Spark, and their measures.
* `report`: charts, and one page.
* `protocol`, `objects`, `drivers`: protocols as generators that ask, object stores, and what answers.
* `kv`: the key-value store that needs nothing but a bucket.
* `catalog`: Iceberg tables on that store, and the plug-in for PyIceberg.
* `cli`: the `endive` command.
"""

__version__ = "0.1.0"
