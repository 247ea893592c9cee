"""Iceberg's REST catalog on a bucket: `endive serve`, or inside another process.

    with serve_in_background(catalog) as server:
        load_catalog("lake", type="rest", **server.client_properties)

`routes` and `application` have the operations, `asgi` the HTTP, `running` the processes.
"""

from endive.server.application import Application
from endive.server.asgi import Asgi, Limits
from endive.server.running import RunningServer, serve_in_background

__all__ = ["Application", "Asgi", "Limits", "RunningServer", "serve_in_background"]
