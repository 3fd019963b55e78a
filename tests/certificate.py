"""A certificate for 127.0.0.1 that nobody vouches for, good from 2020 to 2099, with its key: for tests alone."""

from __future__ import annotations

from pathlib import Path

_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBZjCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAkxMjcuMC4w
LjEwIBcNMjAwMTAxMDAwMDAwWhgPMjA5OTAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CTEyNy4wLjAuMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCYI5K7QUPR37lMn
QVr/+lhXP4drtktrg8RKSCs+dpQPlNkUS1/PRjI+EJ8BJgyh63eCc8MQYEg1vAK2
PhmN+3+jTjBMMBoGA1UdEQQTMBGHBH8AAAGCCWxvY2FsaG9zdDAPBgNVHRMBAf8E
BTADAQH/MB0GA1UdDgQWBBTklaM51iVm29XF21eRsY7J1bzwjjAKBggqhkjOPQQD
AgNHADBEAiBehOYJVSqZKTN9rtpwKkmiSo6ZLU+zUkA3qBb+Pqg/cAIgU9KaWwRT
WZf999ZQE0YN/bAwfqs0XM5C4PAQ/ONBx3Q=
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNHrsbHpk1AfwGdWl
h6GEMgKds8HgemYrgIlpy0QeM4+hRANCAAQmCOSu0FD0d+5TJ0Fa//pYVz+Ha7ZL
a4PESkgrPnaUD5TZFEtfz0YyPhCfASYMoet3gnPDEGBINbwCtj4Zjft/
-----END PRIVATE KEY-----
"""


def write_certificate(folder: Path) -> tuple[str, str]:
    """The files of the certificate and of its key."""
    certificate, key = folder / "own.pem", folder / "own.key"
    certificate.write_text(_CERTIFICATE)
    key.write_text(_KEY)
    return str(certificate), str(key)
