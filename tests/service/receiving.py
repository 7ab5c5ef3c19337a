"""A receiver of notifications on loopback that records them, and can fail, hang, redirect, or be killed."""

import json
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Notification:
    """A request that arrived."""

    def __init__(self, path, headers, body):
        self.path, self.headers, self.body, self.time = path, headers, body, time.monotonic()
        self.event = json.loads(body)


class SelfSignedCertificate:
    """A certificate of its own, for a subject such as "IP:127.0.0.1"; the files are in a folder."""

    def __init__(self, folder, subject):
        self.path, self.key_path = folder / "certificate.pem", folder / "key.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a receiver"]
        command += ["-addext", f"subjectAltName={subject}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
        command += ["-keyout", self.key_path, "-out", self.path]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


class LoopbackReceiver:
    """An HTTP server on loopback; `answer(notification)` returns a status, or a status and headers."""

    def __init__(self, answer=lambda _notification: 200, port=0, certificate=None):
        self.answer, self.accepted, self.received, self.released = answer, [], [], threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver._handle(self, Notification(self.path, dict(self.headers), body))

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.path, certificate.key_path)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"{self._scheme}://127.0.0.1:{self.port}/hooks?key=secret"

    def _handle(self, handler, notification):
        self.received.append(notification)
        answer = self.answer(notification)
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        if status is None:  # hang
            self.released.wait(60)
            return
        if 200 <= status < 300:
            self.accepted.append(notification)
        handler.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    def ids(self):
        return [notification.event["id"] for notification in self.accepted.copy()]

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
