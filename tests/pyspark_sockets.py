"""Closes the sockets that PySpark leaves open, so that a test may treat an unclosed socket as an error.

PySpark 4.1 reads results through the file of a socket and drops the socket itself, which is then closed by the garbage
collector with a `ResourceWarning`, in whatever test happens to run. Closed after the file was made, it stays open for
the file alone.
"""

import io
from typing import Any

from pyspark import util


def close_sockets_of_pyspark() -> None:
    """Let the files through which PySpark reads results own their sockets. Idempotent."""
    util._create_local_socket = _file_of_socket


def _file_of_socket(sock_info: Any) -> io.BufferedRWPair:
    file, socket = util.local_connect_and_auth(sock_info[0], sock_info[1])
    socket.settimeout(None)  # as PySpark does: results may take any time
    socket.close()
    assert isinstance(file, io.BufferedRWPair)
    return file
