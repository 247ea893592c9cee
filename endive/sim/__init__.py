"""The simulator: a discrete-event model of commits on object storage. Start at `transaction`, then `catalog`."""
