"""A Spark session set up for this work, and a clear word where there can be none.

Spark runs in a Java process of its own and starts Python processes for our classes: both are told here which Python
and which source tree to use, and to listen on this machine only.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pixiu.config.extras import how_to_install
from pixiu.model.errors import Unavailable
from pixiu.pipeline.java import start_java
from pixiu.runtime.java import HOW_TO_INSTALL_JAVA, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session", "require_packages", "require_spark"]

PACKAGES = ("pyarrow", "numpy", "deltalake", "duckdb", "zlib_ng")
JOB_MEMORY = "1g"
LOCAL = "local[*]"

ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"
"""What Arrow takes memory from. Its own choice gives every large piece back and asks for it again: page faults were a
fifth of the CPU of a task of the archive. The C library keeps them."""

_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=30000 -XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=60000"
)
"""What Spark does to plan a job it does some thousand times, and Java optimised that for longer than it took to run:
half of Java's CPU in an archive. Loops over rows are optimised as early as ever."""

_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n
"""


def require_packages(*names: str) -> None:
    """Raise ``Unavailable`` with what to do if one of these packages is not here."""
    for name in names or PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise Unavailable(f"the pipeline needs the package {name}; install it with: {how_to_install('pipeline')}")


def require_spark() -> None:
    """Raise ``Unavailable`` with what to do if Spark cannot run here."""
    require_packages("pyspark", *PACKAGES)
    if find_java() is None:
        raise Unavailable(f"the pipeline needs Java 17 for Spark; install it, {HOW_TO_INSTALL_JAVA}")


def open_session(
    work: Path,
    *,
    spark_url: str = LOCAL,
    partitions: int = 4,
    memory: str = JOB_MEMORY,
    for_short_runs: bool = False,
) -> SparkSession:
    """A session that keeps its scratch files below ``work``, with ``format("pixiu")`` registered.

    Where ``spark-submit`` has started this process, it has said where to compute, and ``local[*]`` leaves it at that.
    ``for_short_runs`` spares Java the compiling that only pays after minutes: tests are through in half the time.
    """
    require_spark()
    from pyspark.sql import SparkSession

    from pixiu.pipeline.source.datasource import PixiuDataSource

    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    source_tree = str(Path(__file__).resolve().parents[2])
    environ = os.environ
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    environ.setdefault(ALLOCATOR, "system")
    paths = [source_tree, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    is_submitted = "PYSPARK_GATEWAY_PORT" in environ and spark_url == LOCAL
    is_local = spark_url.startswith("local") and not is_submitted
    settings = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.local.dir": str(work / "local"),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": environ["PYTHONPATH"],
        "spark.python.daemon.module": "pixiu.pipeline.daemon",
        f"spark.executorEnv.{ALLOCATOR}": environ[ALLOCATOR],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_quiet_log(work).as_uri()} {_COMPILE_LATER}",
    }
    if for_short_runs:
        settings["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        settings["spark.sql.codegen.wholeStage"] = "false"
    if not is_local:
        del settings["spark.driver.host"], settings["spark.driver.bindAddress"]
    builder = SparkSession.builder.appName("pixiu pipeline")
    if not is_submitted:
        builder = builder.master(spark_url)
        start_java(settings | {"spark.master": spark_url})
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(PixiuDataSource)
    return spark


def _quiet_log(work: Path) -> Path:
    """Spark's own log: errors alone, on stderr."""
    path = work / "log4j2.properties"
    path.write_text(_LOG4J, encoding="utf-8")
    return path
