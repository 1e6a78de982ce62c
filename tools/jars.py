"""The jars of a server from Maven Central, for tests and benchmarks beside the real thing.

``python -m tools.jars kafka cassandra`` fetches them with Maven, once, into the user's cache (``PIXIU_JARS`` names a
folder instead): never into the repository. Maven resolves what belongs together, through any mirror in its settings.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["ENGINES", "JarsMissing", "jars_of"]

ENGINES = {
    "kafka": ("org.apache.kafka", "kafka_2.13", "4.1.0"),
    "cassandra": ("org.apache.cassandra", "cassandra-all", "5.0.5"),
}
FETCH_SECONDS = 300

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>pixiu</groupId><artifactId>{name}-jars</artifactId><version>1</version>
<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
</dependency></dependencies></project>
"""


class JarsMissing(Exception):
    """They are not here and cannot be fetched; says why."""

    def __init__(self, reason: str, *, can_be_had: bool) -> None:
        super().__init__(reason)
        self.can_be_had = can_be_had
        """Would another setup of this very machine have them? False without Maven, Java or a way to the registry."""


def _cache() -> Path:
    named = os.environ.get("PIXIU_JARS")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pixiu-jars"


def jars_of(engine: str) -> Path:
    """The folder with an engine's jars, fetched if it is not there. Raises ``JarsMissing``."""
    group, artifact, version = ENGINES[engine]
    folder = _cache() / f"{engine}-{version}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise JarsMissing(f"{engine}: Maven and Java 17 fetch and run it, and are not both here", can_be_had=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM.format(name=engine, group=group, artifact=artifact, version=version))
        found = Path(work) / "jars"
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={found}"]
        try:
            run = subprocess.run(
                [maven, "-q", "-B", "-f", str(pom), *goal],
                cwd=work, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise JarsMissing(f"{engine}: Maven took more than {FETCH_SECONDS} s", can_be_had=True) from error
        if run.returncode:
            last = next((line for line in run.stdout.splitlines() if "ERROR" in line), "Maven failed")
            raise JarsMissing(f"{engine}: {last[:300]}", can_be_had=False)
        try:
            found.rename(folder)
        except OSError:  # somebody else fetched them meanwhile
            if not folder.is_dir():
                raise
    return folder


def main(names: list[str]) -> int:
    """Fetch what is named, or everything."""
    for name in names or list(ENGINES):
        if name not in ENGINES:
            print(f"unknown engine {name}: there are {', '.join(ENGINES)}", file=sys.stderr)
            return 2
        try:
            print(f"{name}: {jars_of(name)}", flush=True)
        except JarsMissing as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
