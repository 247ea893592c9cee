"""Configuration: from a TOML file to everything that a run needs.

`configuration` loads a file; `schema` has every key; `defaults` completes what a file leaves out; `validation` phrases
errors; `effects` names keys without effect; `profiles` and `distributions` read providers and their latencies.
"""
