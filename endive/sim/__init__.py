"""The simulator: a discrete-event model of Iceberg commits. Start at `transaction`, then `catalog`."""
