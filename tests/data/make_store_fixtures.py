#!/usr/bin/env python3
"""Writes tests/data/store/version-N.sqlite: a store as version N of the schema had it, by Python's
sqlite3 from the statements of server/store/sqlite_schema.cc. Run once when a version is followed by
another; files of released versions never change.

Usage: make_store_fixtures.py VERSION
"""

import pathlib
import re
import sqlite3
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def crc32c(data):
    """Castagnoli's polynomial, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def add_job(db, version, number, name, state, rows, report, error=b""):
    """`rows`: one (row state, seq or 0) each."""
    states = [row[0] for row in rows]
    spec = b"spec"
    db.execute(
        "INSERT INTO jobs(number, id, uid, tenant, request_id, fingerprint, model, spec, spec_crc,"
        " priority, input_format, input_file, state, next_index, total, pending, succeeded,"
        " last_seq, create_time_us, start_time_us, end_time_us, error, error_crc)"
        " VALUES(?, ?, ?, 'default', ?, x'01', 'model', ?, ?, 2, 1, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?,"
        " ?, ?)",
        (number, name, f"uid-{name}", f"request-{name}", spec, crc32c(spec), f"jobs/{name}", state,
         len(rows) - states.count(0), len(rows), states.count(0) + states.count(5),
         states.count(2), states.count(2), 1000 + number, 5 if state >= 6 else 0, error,
         crc32c(error)))
    if report is not None:
        db.execute("UPDATE jobs SET report = ?, report_crc = ? WHERE number = ?",
                   (report, crc32c(report), number))
    for index, (row_state, seq) in enumerate(rows):
        db.execute("INSERT INTO rows(job, idx, offset, length, line, state) VALUES(?, ?, ?, 9, ?, ?)",
                   (number, index, index * 10, index + 1, row_state))
        if seq:
            body = f"result of row {index}".encode()
            db.execute("INSERT INTO results VALUES(?, ?, ?, ?)",
                       (number << 40 | seq, index, body, crc32c(body)))
            if version >= 3:
                db.execute("UPDATE rows SET seq = ? WHERE job = ? AND idx = ?",
                           (seq, number, index))
    if version >= 3 and error:
        db.execute("UPDATE jobs SET end_state = 7 WHERE number = ?", (number,))


def main(version):
    schema = (ROOT / "server/store/sqlite_schema.cc").read_text()
    statements = re.findall(r'R"sql\((.*?)\)sql"', schema, re.DOTALL)[:version]
    target = ROOT / f"tests/data/store/version-{version}.sqlite"
    db = sqlite3.connect(target)
    for script in statements:
        db.executescript(script)
    db.execute("PRAGMA application_id=0x4E534A53")
    db.execute(f"PRAGMA user_version={version}")
    report = b"report" if version >= 2 else None
    add_job(db, version, 1, "done", 6, [(2, 2), (2, 3), (2, 1)], report)
    add_job(db, version, 2, "open", 3, [(2, 1), (5, 0)], report)
    add_job(db, version, 3, "failing", 5, [(0, 0)], report, b"error")
    add_job(db, version, 4, "cancelling", 5, [(0, 0)], report)
    if version >= 3:
        add_job(db, version, 5, "queued", 2 if version >= 4 else 1, [(0, 0), (0, 0)], report)
    if version >= 4:
        db.execute("UPDATE jobs SET checked = total WHERE state != 2")
    db.execute("INSERT INTO meta VALUES('clean', 1)")
    db.commit()
    db.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
