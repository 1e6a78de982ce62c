"""Java, which Spark and ZooKeeper need."""

import os
import shutil
from pathlib import Path

__all__ = ["HOW_TO_INSTALL_JAVA", "can_install_packages", "find_java"]

HOW_TO_INSTALL_JAVA = "on Debian: apt install openjdk-17-jre-headless"


def find_java() -> str | None:
    """The command ``java``: the one of JAVA_HOME if that is set (as Spark does), else the one on the search path."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    command = Path(home) / "bin" / "java"
    return str(command) if command.exists() else None


def can_install_packages() -> bool:
    """Whether tools/get_packages.sh can install Debian's packages here without a question."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None
