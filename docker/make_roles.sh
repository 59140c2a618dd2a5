#!/bin/sh
# Run by the postgres image when it makes the database: the roles of the service and of the workers.
# What they may do, `lossbench db upgrade --roles` says, which runs before the service.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  -v service="$LOSSBENCH_SERVICE_PASSWORD" -v worker="$LOSSBENCH_WORKER_PASSWORD" <<'SQL'
CREATE ROLE lossbench_service LOGIN PASSWORD :'service';
CREATE ROLE lossbench_worker LOGIN PASSWORD :'worker';
SQL
