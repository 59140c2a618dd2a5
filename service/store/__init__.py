"""The store: tables, migrations, queries and the queue. Only it talks to the database."""
