"""What a port answers to whom lacks its secrets: text, HTTP, TLS, TLS with a certificate.

``knock.py PORT [CERTIFICATE KEY]`` needs nothing but Python, so that any user can run it. It prints
one line of JSON: the first bytes of each answer, empty where there was none.
"""

import contextlib
import json
import socket
import ssl
import sys

REQUEST = b"%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
REQUEST += b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
PATHS = {
    "page": (b"GET", b"/"),
    "info": (b"GET", b"/info/main/workers.html"),
    "settings": (b"GET", b"/api/admin/settings"),
    "runs": (b"POST", b"/api/flow_runs/filter"),
    "deployments": (b"POST", b"/api/deployments/"),
}


def knock(port: int, said: bytes, context: ssl.SSLContext | None = None) -> str:
    """Return how a port begins its answer."""
    # What is refused ends in an alert of TLS, a reset, or silence.
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.settimeout(3)
        with plain if context is None else context.wrap_socket(plain) as channel:
            channel.sendall(said)
            # A server of HTTP may drop an answer once its reader is gone.
            if context is None and b"HTTP" not in said:
                channel.shutdown(socket.SHUT_WR)
            return channel.recv(64).decode("latin-1")
    return ""


def main(port: int, *certificate: str) -> None:
    """Try each way in."""
    answers = {"text": knock(port, b"\x00" * 64), "tls": "", "certificate": ""}
    for name, words in PATHS.items():
        answers[name] = knock(port, REQUEST % (*words, port))
    # A port speaks HTTP or TLS, and waits for the other's end without end.
    if not any(answers.values()):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        answers["tls"] = knock(port, b"\x00" * 64, context)
        if certificate:
            context.load_cert_chain(*certificate)
            answers["certificate"] = knock(port, b"\x00" * 64, context)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
