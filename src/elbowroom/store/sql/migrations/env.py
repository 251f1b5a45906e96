"""Runs the migrations that a file has not seen, on the connection that `store.sql.schema` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
