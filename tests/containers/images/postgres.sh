# As the entry of the image `postgres`: arguments are those of the server.
set -e
data=/var/lib/postgresql/data bin=/usr/lib/postgresql/15/bin
as_owner() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

mkdir -p "$data" /var/run/postgresql
chown -R postgres "$data" /var/run/postgresql
if [ ! -s "$data/PG_VERSION" ]; then
    as_owner "$bin/initdb" -D "$data" -U postgres --auth=trust >/dev/null
    echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$data/pg_hba.conf"
    as_owner "$bin/pg_ctl" -D "$data" -w -o "-c listen_addresses=''" start >/dev/null
    for file in /docker-entrypoint-initdb.d/*.sql; do
        if [ -e "$file" ]; then as_owner "$bin/psql" -U postgres -f "$file"; fi
    done
    as_owner "$bin/pg_ctl" -D "$data" -w stop >/dev/null
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups \
    "$bin/postgres" -D "$data" -c listen_addresses='*' "$@"
