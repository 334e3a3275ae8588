#!/usr/bin/env python3
"""TLS and certificates of clients with the real executables: who is let in, and what a rotation to a bad
pair of certificate and key costs: nothing."""

import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import time
import unittest
import urllib.request

from e2e_lib import (FAKE_NIGHTSHIFTD, LIMIT_S, NIGHTSHIFT, EndToEndTest, client_environment,
                     run_client, write_rows)

ROWS = [{"id": str(i), "prompt": f"document {i}", "max_tokens": 2} for i in range(4)]
NOT_ALLOWED, CONFIG = 7, 78
SERVER_NAMES = "DNS:localhost,IP:127.0.0.1"
CLIENT_NAME = "spiffe://site/tenant/acme"


class Authority:
    """A CA that lives for one test, with the openssl of the machine."""

    def __init__(self, folder, name):
        self.folder, self.name = pathlib.Path(folder), name
        self.certificate = self.folder / f"{name}.pem"
        self._openssl("req", "-x509", *self._new_key(name), "-subj", f"/CN={name}", "-days", "2",
                      "-out", self.certificate)

    def issue(self, name, alternative_names, days=2):
        """Makes NAME.pem and NAME.key; negative days: it has expired."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\n")
        self._openssl("req", *self._new_key(name), "-subj", f"/CN={name}", "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey",
                      self.folder / f"{self.name}.key", "-CAcreateserial", "-days", days,
                      "-extfile", extensions, "-out", self.folder / f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                self.folder / f"{name}.key")

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class TlsTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder, "ca")
        self.pair = self.folder / "served.pem", self.folder / "served.key"
        self.install("first")
        self.client_pair = self.authority.issue("client", f"URI:{CLIENT_NAME}")
        self.access = self.folder / "access"
        self.access.write_text(f"certificate:{CLIENT_NAME} acme submitter never\n")
        self.access.chmod(0o640)
        self.ready = self.folder / "ready"

    def install(self, name, days=2):
        """Makes a new certificate of the daemon and puts it where the daemon looks."""
        self.put(*self.authority.issue(name, SERVER_NAMES, days))

    def put(self, certificate, key):
        for source, target in zip((certificate, key), self.pair):
            target.write_bytes(source.read_bytes())
            target.chmod(0o600)

    def start(self, *options, listen="localhost:0"):
        self.server = self.daemon(
            "--listen", listen, "--ready-file", self.ready,
            "--tls-cert", self.pair[0], "--tls-key", self.pair[1], "--access-file", self.access,
            *options, executable=FAKE_NIGHTSHIFTD).start()
        self.address = self.ready.read_text().split()[-1]

    def start_with_certificates(self, *options):
        self.start("--tls-client-ca", self.authority.certificate, *options)

    def metric(self, name):
        url = re.search(r"listening address=(http://\S+)", self.server.log_of_this_start())[1]
        with urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S) as page:
            return float(re.search(rf"^nightshift_{name} (\S+)", page.read().decode(), re.MULTILINE)[1])

    def info(self):
        return json.loads(self.client("server", "info", "--json", pair=self.client_pair).stdout)

    def client(self, *arguments, ca=None, pair=(), token=None):
        environment = client_environment(self.address)
        environment["NIGHTSHIFT_CA"] = str(ca or self.authority.certificate)
        if pair:
            environment["NIGHTSHIFT_CLIENT_CERT"] = str(pair[0])
            environment["NIGHTSHIFT_CLIENT_KEY"] = str(pair[1])
        if token:
            environment["NIGHTSHIFT_TOKEN_FILE"] = str(token)
        return subprocess.run([NIGHTSHIFT, *map(str, arguments)], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def assert_ends(self, done, code, *said):
        self.assertEqual(done.returncode, code, done.stderr + self.server.tail())
        for words in said:
            self.assertIn(words, done.stderr)

    def served(self):
        """The name in the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(*self.client_pair)
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as plain:
            with context.wrap_socket(plain, server_hostname=host) as connection:
                return dict(pair[0] for pair in connection.getpeercert()["subject"])["commonName"]

    def reload(self):
        os.kill(self.server.pid, signal.SIGHUP)

    def test_a_certificate_stands_for_its_tenant_and_role(self):
        self.start_with_certificates()
        source = write_rows(self.folder / "rows.jsonl", ROWS)
        done = self.client("run", source, "--output", self.folder / "out.jsonl",
                           pair=self.client_pair)
        self.assert_ends(done, 0)
        self.assertIn("job_accepted job=acme/", self.server.log_of_this_start())
        self.assert_ends(self.client("server", "drain", pair=self.client_pair), NOT_ALLOWED,
                         "ROLE_TOO_LOW")
        stranger = self.authority.issue("stranger", "URI:spiffe://site/tenant/bolt")
        self.assert_ends(self.client("list", pair=stranger), NOT_ALLOWED, "CERTIFICATE_UNKNOWN",
                         "tenant/bolt")

    def test_strangers_are_not_let_in_and_liars_not_believed(self):
        self.start_with_certificates()
        self.assert_ends(self.client("list"), NOT_ALLOWED, "--client-cert")
        other = Authority(self.folder, "other")
        forged = other.issue("forged", f"URI:{CLIENT_NAME}")
        self.assert_ends(self.client("list", pair=forged), NOT_ALLOWED)
        self.assert_ends(self.client("list", pair=self.client_pair, ca=other.certificate),
                         NOT_ALLOWED, "--ca")

    def test_a_token_alone_is_enough_where_that_is_allowed(self):
        made = run_client("make-token", "--role", "reader")
        token = self.folder / "token"
        token.write_text(made.stdout)
        token.chmod(0o600)
        self.access.write_text(self.access.read_text() + made.stderr)
        self.start("--tls-client-ca", self.authority.certificate, "--allow-token-only", "yes")
        self.assert_ends(self.client("list", token=token), 0)
        self.assert_ends(self.client("list"), NOT_ALLOWED, "TOKEN_REQUIRED")
        self.assert_ends(self.client("list", pair=self.client_pair), 0)

    def test_a_rotation_serves_the_last_good_pair(self):
        self.start_with_certificates("--http-listen", "127.0.0.1:0")
        self.assertEqual(self.served(), "first")
        expires = self.metric("tls_cert_expiry_timestamp_seconds")
        self.assertAlmostEqual(expires, time.time() + 2 * 86400, delta=3600)
        self.assertIsNone(self.info()["tls"]["refused"])
        self.assertEqual(self.metric("tls_pair_refused"), 0)
        expired = self.authority.issue("expired", SERVER_NAMES, -1)
        other = self.authority.issue("other-key", SERVER_NAMES)
        garbage = self.folder / "garbage.pem"
        garbage.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        chain = self.folder / "chain.pem"
        stranger = Authority(self.folder, "stranger-ca").certificate
        chain.write_text(other[0].read_text() + stranger.read_text())
        for bad, why in ((lambda: self.put(garbage, self.pair[1]), "does not parse"),
                         (lambda: self.put(*expired), "has expired at"),
                         (lambda: self.put(chain, other[1]), "not signed by certificate 2"),
                         (lambda: self.put(other[0], expired[1]), "not the private key")):
            bad()
            self.reload()
            self.server.wait_for_log(why)
            self.assertEqual(self.served(), "first")
            self.assertIn(why, self.info()["tls"]["refused"])
            self.assertEqual(self.metric("tls_pair_refused"), 1)
            self.assertEqual(self.metric("tls_cert_expiry_timestamp_seconds"), expires)
        refusals = re.findall("tls_certificate_refused", self.server.log_of_this_start())
        self.assertEqual(len(refusals), 4)
        plain = run_client("server", "info", address=self.address)
        self.assertEqual(plain.returncode, 8, plain.stderr)
        self.install("second")
        self.reload()
        while self.served() != "second":
            self.assertFalse(self.server.died_within(0.1))
        self.assertIsNone(self.info()["tls"]["refused"])
        self.assertEqual(self.metric("tls_pair_refused"), 0)

    def test_a_bad_pair_is_no_start(self):
        self.install("expired", -1)
        server = self.daemon("--listen", "localhost:0", "--tls-cert", self.pair[0], "--tls-key",
                             self.pair[1], executable=FAKE_NIGHTSHIFTD)
        server.launch()
        self.assertEqual(server.wait(), CONFIG)
        self.assertIn("has expired at", server.tail())

    def test_other_machines_are_served_only_behind_tls_access_file_and_certificates(self):
        tls = ("--tls-cert", self.pair[0], "--tls-key", self.pair[1])
        access = ("--access-file", self.access)
        for options, missing in (((), "--tls-cert"), (tls, "--access-file"),
                                 ((*tls, *access), "--tls-client-ca")):
            server = self.daemon("--listen", "0.0.0.0:0", *options, executable=FAKE_NIGHTSHIFTD)
            server.launch()
            self.assertEqual(server.wait(), CONFIG)
            self.assertIn(missing, server.tail())
        self.start("--tls-client-ca", self.authority.certificate, listen="0.0.0.0:0")
        self.address = self.address.replace("0.0.0.0", "127.0.0.1")
        self.assert_ends(self.client("list", pair=self.client_pair), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
