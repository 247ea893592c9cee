"""From the rows of a run to metrics, experiments on disk, and the search for a capacity."""
