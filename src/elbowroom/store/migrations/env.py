"""What Alembic runs to bring the tables up to date, on the connection that `store.sql.schema` hands over."""

from alembic import context

from elbowroom.store.sql.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
