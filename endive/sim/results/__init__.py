"""Results: the rows of a run, metrics, experiments on disk, comparison and capacity."""
