"""Object stores: things that hold bytes under names.

* `api`: what a store must do, and what it says of itself.
* `memory`, `local`: a dictionary, a directory.
"""
