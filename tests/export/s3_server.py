"""An S3 server on 127.0.0.1 for tests: moto's, in a process of its own, one request at a time.

S3 answers each request as if it were alone. moto looks for an object and makes it in two steps, so
of two conditional puts at the same moment both might be told that they were first.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Nothing answers there: credentials are not asked for beyond this machine.
NOWHERE = "http://127.0.0.1:9"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


class S3Server:
    """The server as tests have it."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it has in its environment."""
        return {
            **KEYS,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_METADATA_ENDPOINT": NOWHERE,
        }

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        self._ask("PUT", f"/{name}")

    def check_access(self, is_checked: bool) -> None:
        """Ask for known keys with rights from now on, or no longer."""
        self._ask("POST", "/moto-api/reset-auth", b"0" if is_checked else b"inf")

    def make_user(self, name: str) -> dict[str, str]:
        """Make a user without any right; the keys, as an environment has them."""
        users = self.client("iam")
        users.create_user(UserName=name)
        key = users.create_access_key(UserName=name)["AccessKey"]
        return {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }

    def client(self, service: str = "s3") -> Any:
        """boto3's client of it."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def _ask(self, method: str, path: str, body: bytes | None = None) -> None:
        request = urllib.request.Request(self.endpoint + path, data=body, method=method)
        # Else it would be read as a form.
        request.add_header("Content-Type", "text/plain")
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start one, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield S3Server(int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Called in its process: serves as long as its parent lives, at a port that it prints."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    served, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def application(environment: Any, start_response: Any) -> Iterable[bytes]:
        with one_at_a_time:
            return list(served(environment, start_response))

    class Kept(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are sent apart, and the second would wait for the first one's answer.
        disable_nagle_algorithm = True

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Kept)
    print(server.port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
