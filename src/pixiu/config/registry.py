"""Where a registry is, as one word: ``zk://HOST:PORT[,HOST:PORT…][/PATH]``."""

from typing import NamedTuple, Self

from pixiu.model.errors import ConfigError

__all__ = ["RegistryAddress"]

SCHEME = "zk://"
ROOT = "/pubsub"
PORT = 2181


class RegistryAddress(NamedTuple):
    """The servers of a registry, and the folder in it that is ours."""

    hosts: str
    """``HOST:PORT``, several with commas."""
    root: str
    """Begins with a slash and does not end with one."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``zk://…``; a port left out is 2181, a path left out is /pubsub. Raises ``ConfigError``."""
        if not text.startswith(SCHEME):
            raise ConfigError(f"a registry is zk://HOST:PORT[,HOST:PORT]/PATH, not {text!r}")
        places, _, path = text.removeprefix(SCHEME).partition("/")
        hosts = []
        for place in places.split(","):
            host, separator, port = place.strip().rpartition(":")
            if not separator or place.endswith("]"):
                host, port = place.strip(), str(PORT)
            if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
                raise ConfigError(f"{place!r} in {text!r} is not HOST:PORT")
            hosts.append(f"{host}:{port}")
        names = [name for name in path.split("/") if name]
        if any(name in (".", "..") or not name.isprintable() or " " in name for name in names):
            raise ConfigError(f"{text!r} does not end in a path like /pubsub")
        return cls(",".join(hosts), "".join(f"/{name}" for name in names) or ROOT)

    def __str__(self) -> str:
        return f"{SCHEME}{self.hosts}{self.root}"
