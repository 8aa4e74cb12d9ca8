"""A real PostgreSQL for the tests of pgvector."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def programs():
    """Return the folder of initdb and pg_ctl: of the first initdb on the PATH, or that pg_config names; None: no server."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    if shutil.which("pg_config"):
        folder = Path(
            subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        )
        return folder if (folder / "initdb").exists() else None
    return None


@pytest.fixture(scope="session")
def address():
    """Yield the address of a PostgreSQL that is started for these tests, on a socket in a folder of its own."""
    psycopg = pytest.importorskip("psycopg", reason="needs likewise[pgvector]")
    folder, root = programs(), os.geteuid() == 0
    if folder is None:
        pytest.skip("needs a PostgreSQL server (initdb)")
    if root and "postgres" not in {user.pw_name for user in pwd.getpwall()}:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    place = Path(tempfile.mkdtemp(prefix="pg"))  # the path of a socket must be short
    user = {"user": "postgres"} if root else {}
    if root:
        shutil.chown(place, "postgres")

    def run(*words):
        subprocess.run([str(folder / words[0]), *words[1:]], check=True, capture_output=True, cwd="/", **user)

    try:
        run("initdb", "-D", str(place / "data"), "-U", "ann", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-k {place} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-D", str(place / "data"), "-o", options, "-l", str(place / "log"), "-w", "-t", "600", "start")
        try:
            where = f"postgresql://ann@/postgres?host={place}"
            try:
                with psycopg.connect(where) as connection:
                    connection.execute("CREATE EXTENSION vector")
            except psycopg.Error as error:
                pytest.skip(f"needs the extension vector in the server ({error})")
            yield where
        finally:
            run("pg_ctl", "-D", str(place / "data"), "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)
