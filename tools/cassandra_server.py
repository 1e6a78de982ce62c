"""One Cassandra on loopback, from Maven Central's jars: for tests and benchmarks beside the real thing.

``python -m tools.cassandra_server DIR`` starts one with its data in DIR, prints its address and stops with Ctrl-C. It
has a small heap, one token and none of the waits that a cluster needs; whoever runs it for real uses a release with
its own settings.
"""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pixiu.runtime.ports import free_ports
from tools.jars import JarsMissing, jars_of

__all__ = ["CassandraServer"]

HEAP_MB = 512
START_SECONDS = 120
STOP_SECONDS = 20

_OPENS = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.module", "java.base/java.lang.reflect",
    "java.base/java.math", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math", "java.base/jdk.internal.misc", "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect", "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch", "java.base/java.time", "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal", "jdk.compiler/com.sun.tools.javac.file",
)  # fmt: skip
_EXPORTS = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql", "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach", "jdk.compiler/com.sun.tools.javac.file",
)  # fmt: skip
_QUICK = (
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=100",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.initial_token=0",
    "-Dcassandra.disable_auth_caches_remote_configuration=true",
    "-Dcassandra.available_processors=2",
)

_YAML = """cluster_name: pixiu
num_tokens: 1
initial_token: 0
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {native}
storage_port: {storage}
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{storage}"
data_file_directories: ["{folder}/data"]
commitlog_directory: "{folder}/commitlog"
saved_caches_directory: "{folder}/saved_caches"
hints_directory: "{folder}/hints"
cdc_raw_directory: "{folder}/cdc_raw"
commitlog_sync: periodic
commitlog_sync_period: 1000ms
commitlog_segment_size: 8MiB
commitlog_total_space: 128MiB
concurrent_reads: 8
concurrent_writes: 16
concurrent_compactors: 1
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
memtable_flush_writers: 1
key_cache_size: 8MiB
row_cache_size: 0MiB
counter_cache_size: 0MiB
file_cache_size: 32MiB
networking_cache_size: 16MiB
auto_snapshot: false
hinted_handoff_enabled: false
read_request_timeout: 2000ms
range_request_timeout: 5000ms
write_request_timeout: 2000ms
truncate_request_timeout: 30000ms
disk_failure_policy: stop
commit_failure_policy: stop
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
"""

_LOGBACK = """<configuration>
<appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%-5level %date{ISO8601} %F:%L - %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="STDOUT"/></root></configuration>
"""


class CassandraServer:
    """One server in a process of its own. Its ports stay the same over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        heap_mb: int = HEAP_MB,
        starts_quickly: bool = True,
        more: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """One that starts quickly runs slower later on: benchmarks want the other. Raises ``JarsMissing``.

        ``more`` are further lines of its configuration; ``tls`` is how it is asked whether it is there, if these want
        it.
        """
        if shutil.which("java") is None:
            raise JarsMissing("cassandra: Java 17 runs it, and is not here", can_be_had=False)
        self._jars = jars_of("cassandra")
        self.folder = folder
        self._heap_mb = heap_mb
        self._starts_quickly = starts_quickly
        self._more = more
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._storage_port = free_ports(2)
        self.host = "127.0.0.1"

    @property
    def address(self) -> str:
        """What clients are given: HOST:PORT."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, waits: bool = True) -> None:
        """Start it on its data, and wait until it takes clients."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config, logback = self.folder / "cassandra.yaml", self.folder / "logback.xml"
        lines = _YAML.format(folder=self.folder, native=self.port, storage=self._storage_port)
        config.write_text(lines + self._more)
        logback.write_text(_LOGBACK)
        with (self.folder / "out.txt").open("ab") as out:
            self._process = subprocess.Popen(
                self._command(config, logback), stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.folder,
                start_new_session=True, env={**os.environ, "CASSANDRA_HOME": str(self.folder)},
            )  # fmt: skip
        if waits:
            self.wait()

    def wait(self, timeout_seconds: float = START_SECONDS) -> None:
        """Until clients are taken."""
        until = time.monotonic() + timeout_seconds
        while not self._answers():
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                lines = (self.folder / "out.txt").read_text(errors="replace").splitlines()[-15:]
                raise RuntimeError("Cassandra did not start:\n" + "\n".join(lines))
            time.sleep(0.1)

    def _command(self, config: Path, logback: Path) -> list[str]:
        java = ["java", f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC"]
        if self._starts_quickly:
            java.append("-XX:TieredStopAtLevel=1")
        java += ["-XX:+PerfDisableSharedMem", "-Xss512k", "-Djdk.attach.allowAttachSelf=true"]
        java += [f"-javaagent:{next(self._jars.glob('jamm-*.jar'))}", "-Djava.net.preferIPv4Stack=true"]
        for each in _OPENS:
            java += ["--add-opens", f"{each}=ALL-UNNAMED"]
        for each in _EXPORTS:
            java += ["--add-exports", f"{each}=ALL-UNNAMED"]
        java += [f"-Dcassandra.config=file://{config}", f"-Dlogback.configurationFile=file://{logback}"]
        java += [f"-Dcassandra.storagedir={self.folder}", "-Dcassandra-foreground=yes"]
        java += [f"-Djava.io.tmpdir={self.folder}", "-Dio.netty.transport.estimateSizeOnSubmit=false", *_QUICK]
        return [*java, "-cp", f"{self._jars}/*", "org.apache.cassandra.service.CassandraDaemon"]

    def _answers(self) -> bool:
        """An OPTIONS request of protocol 4 is answered with SUPPORTED."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as link:
                if self._tls is None:
                    return _is_supported(link)
                with self._tls.wrap_socket(link, server_hostname=self.host) as inside:
                    return _is_supported(inside)
        except OSError:
            return False

    def freeze(self) -> None:
        """Let it hold its connections and answer nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Without a word. What was written within the last second may be lost to the machine, not to a restart."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End it in order; kill it if that takes too long."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def cpu_seconds(self) -> float:
        """What the process has taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """What the process has in memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


def _is_supported(link: socket.socket) -> bool:
    link.sendall(b"\x04\x00\x00\x00\x05\x00\x00\x00\x00")
    answer = link.recv(9)
    return len(answer) >= 5 and answer[4] == 0x06


def main(arguments: list[str]) -> int:
    """Run one until Ctrl-C."""
    if len(arguments) != 1:
        print("usage: python -m tools.cassandra_server DIR", file=sys.stderr)
        return 2
    try:
        with CassandraServer(Path(arguments[0]).absolute()) as server:
            print(f"cassandra://{server.address}/chatdata", flush=True)
            signal.pause()
    except JarsMissing as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
