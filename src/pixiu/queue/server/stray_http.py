"""HTTP that came to the queue's port: told where it belongs, instead of being left without an answer.

A command begins with its number, a byte. The letters that HTTP's methods begin with are no numbers of commands, neither
smss's nor Pixiu's, and a name as long as their next two letters say does not exist: nobody who speaks the queue's
protocol begins like this.
"""

__all__ = ["FIRST_BYTES", "answer", "is_http"]

_METHODS = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
FIRST_BYTES = frozenset(method[0] for method in _METHODS)


def is_http(data: bytes, position: int) -> bool:
    """Does a request of HTTP begin here?"""
    return data[position : position + 4] in _METHODS


def answer(http_address: str) -> bytes:
    """The answer, after which the connection ends."""
    where = f" HTTP is at http://{http_address}." if http_address else ""
    text = f"This is the port of Pixiu's queue, which does not speak HTTP.{where}\n".encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + text
