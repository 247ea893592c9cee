"""`endive catalog`: Iceberg tables in a bucket, from the command line.

In reading order: `arguments` (shared by all commands), `columns` and `times` (parsers), `rendering`, then the
commands: `namespaces`, `table_commands`, `changing`, `past`, `data_files`, `checking`, `maintaining`,
`through_time`, `granting`.
"""

import typer

from endive.cli.catalog import (
    changing,
    checking,
    data_files,
    granting,
    maintaining,
    namespaces,
    past,
    table_commands,
    through_time,
    views,
)

app = typer.Typer(no_args_is_help=True, help="Iceberg tables that need nothing but a bucket.")
app.command("init")(namespaces.init)
app.command("namespaces")(namespaces.namespaces)
app.command("tables")(namespaces.tables)
app.command("views")(views.views)
app.command("create")(table_commands.create)
app.command("show")(table_commands.show)
app.command("history")(past.history)
app.command("files")(data_files.files)
app.command("rename")(table_commands.rename)
app.command("drop")(table_commands.drop)
app.command("set")(changing.set_values)
app.command("rollback")(past.rollback)
app.command("tag")(past.tag)
app.command("branch")(past.branch)
app.command("expire")(past.expire)
app.command("orphans")(data_files.orphans)
app.command("checkpoint")(through_time.checkpoint)
app.command("open")(through_time.open_catalog)
app.command("restore")(through_time.restore)
app.command("clone")(through_time.clone)
app.command("grant")(granting.grant)
app.command("revoke")(granting.revoke)
app.command("grants")(granting.grants)
app.command("maintain")(maintaining.maintain)
app.command("import")(data_files.import_table)
app.command("export")(data_files.export)
app.command("check")(checking.check)
