"""Configuration: from TOML to a `SimulationConfig`.

`configuration` loads a file; `schema` has every key; `defaults` fills in defaults that depend on other keys;
`validation` words the errors; `effects` warns of keys without effect; `profiles` and `distributions` read providers.
"""
