"""`endive catalog`: Iceberg tables in a bucket, from the command line.

In reading order: `opening` (what all commands share), `columns` and `times` (what people type), `rendering`, then the
commands: `namespaces`, `tables`, `changing`, `past`, `files`, `checking`.
"""

import typer

from endive.cli.catalog import changing, checking, files, namespaces, past, tables

app = typer.Typer(no_args_is_help=True, help="Iceberg tables that need nothing but a bucket.")
app.command("init")(namespaces.init)
app.command("namespaces")(namespaces.namespaces)
app.command("tables")(namespaces.tables)
app.command("create")(tables.create)
app.command("show")(tables.show)
app.command("history")(past.history)
app.command("files")(files.files)
app.command("rename")(tables.rename)
app.command("drop")(tables.drop)
app.command("set")(changing.set_values)
app.command("rollback")(past.rollback)
app.command("tag")(past.tag)
app.command("branch")(past.branch)
app.command("expire")(past.expire)
app.command("orphans")(files.orphans)
app.command("import")(files.import_table)
app.command("export")(files.export)
app.command("check")(checking.check)
