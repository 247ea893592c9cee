"""A key-value store in a directory: durable writes, a reader beside the writer, a checkpoint, and fencing."""

import tempfile

from endive.errors import FencedError
from endive.kv import Reader, Store
from endive.objects import open_objects

with tempfile.TemporaryDirectory() as directory:
    objects = open_objects(directory)  # or s3://bucket/prefix, gs://..., az://...
    store = Store(objects)
    store.put(b"tables/orders", b"version 1")  # durable on return: one request
    store.write([(b"tables/lines", b"version 1"), (b"tables/orders", b"version 2")])  # all or nothing

    reader = Reader(objects)  # in another process, or on another machine
    print("reader        ", reader.get(b"tables/orders"))
    checkpoint = store.checkpoint(lifetime_s=3600, name="before")
    store.delete(b"tables/lines")
    print("now           ", dict(store.scan(prefix=b"tables/")))
    print("at checkpoint ", dict(Reader(objects, checkpoint="before").scan()))

    successor = Store(objects)  # opening fences the writer before
    try:
        store.put(b"tables/orders", b"version 3")
    except FencedError as error:
        print("fenced        ", error)
    print("successor     ", successor.get(b"tables/orders"))
    store.close()
    successor.close()
