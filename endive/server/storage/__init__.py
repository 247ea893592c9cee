"""Access to a table's files for clients: temporary keys or signed requests, for the table's own folders only.

`folders` says which they are, `policy` writes it for AWS, `vending` gets keys from STS, `signing` signs single requests
where there is no STS, and `delegation` connects them to the operations. The server's own keys never leave it.
"""
