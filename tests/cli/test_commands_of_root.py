"""A command that root runs on the data directory of another user writes files of that user."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.runtime.datadir import DataDirectory
from tests.cli.test_token_cli import verified
from tests.e2e.test_production_guide import USER, Production, require_root


@pytest.fixture
def production() -> Iterator[Production]:
    require_root()
    folder = Path(tempfile.mkdtemp(prefix="pixiu-root-"))
    folder.chmod(0o755)
    made = Production(folder)
    try:
        yield made
    finally:
        made.namespace.close()
        shutil.rmtree(folder)


def owners(data: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_uid, path.lstat().st_gid) for path in (data, *data.rglob("*"))}


def test_pixiu_token_of_root_writes_files_of_the_owner_of_the_directory(production: Production) -> None:
    data, user = production.data, pwd.getpwnam(USER)
    data.parent.mkdir(parents=True)
    DataDirectory.open(data).close()
    for path in (data, *data.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    before = set(owners(data))
    for words in (("--new-key",), ("alice",), ("--new-key",), ("bob", "--admin")):
        done = production.pixiu("token", *words, "--data", str(data))
        assert done.returncode == 0 and "runs as root" not in done.stderr, done.stderr
    after = owners(data)
    assert len(after) > len(before), "keys were written"
    assert set(after.values()) == {(user.pw_uid, user.pw_gid)}
    assert verified(data, done.stdout.strip()).user == "bob"
    read = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "cat"]
    keys = [str(path) for path in (data / "keys").iterdir()]
    assert subprocess.run([*read, *keys], capture_output=True, check=False).returncode == 0, "its server reads them"
