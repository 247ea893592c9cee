"""The compiled engine: the model of `endive.sim` as arrays, loops and one heap, with the same results."""
