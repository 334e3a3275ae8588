"""What a machine that stops would find on its disk: the log of tests/support/disk_faults.cc over the
folder as it was.

Nothing is taken for durable but what was synced: bytes by a sync of their file, names by a sync of
their folder. Of the rest any part may have reached the disk: none, the first changes, or some of
them, the last of which may be torn at a sector or a byte. A rename inside one folder is atomic.
"""

import os
import pathlib
import struct

HEADER = struct.Struct("<IIIIQQQ")
CREATE, WRITE, CUT, SYNC, RENAME, REMOVE = range(1, 7)
SECTOR = 512


class File:
    def __init__(self, content=b""):
        self.durable = bytearray(content)
        self.pending = []  # (offset, bytes), or (size, None) for a cut

    def change(self, offset, data):
        self.pending.append((offset, data))

    def sync(self):
        for offset, data in self.pending:
            apply(self.durable, offset, data)
        self.pending = []

    def found(self, chance):
        content = bytearray(self.durable)
        kept = choose(self.pending, chance)
        if kept and kept[-1][1] and chance.random() < 0.5:
            offset, data = kept[-1]
            torn = chance.randrange(len(data))
            if chance.random() < 0.5:
                torn -= (offset + torn) % SECTOR
            kept[-1] = (offset, data[:max(torn, 0)])
        for offset, data in kept:
            apply(content, offset, data)
        return bytes(content)


def apply(content, offset, data):
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    elif data:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset:offset + len(data)] = data


def choose(changes, chance):
    """None of the changes, the first ones, or some of them; in their order."""
    way = chance.randrange(3)
    if way == 0:
        return []
    if way == 1:
        return changes[:chance.randint(0, len(changes))]
    return [change for change in changes if chance.random() < 0.5]


class Disk:
    """A folder, all of it durable now, and what happens to it from now on."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.names = {}  # durable: path below the folder -> File
        self.pending = []  # (folder, [(path, File or None), ...])
        self.files = {}  # by inode
        self.folders = {}
        for root, _, files in os.walk(self.folder):
            self.folders[os.stat(root).st_ino] = root
            for name in files:
                path = os.path.join(root, name)
                file = File(pathlib.Path(path).read_bytes())
                self.names[path] = file
                self.files[os.stat(path).st_ino] = file
        self.current = dict(self.names)

    def replay(self, log):
        """Reads the daemon's changes."""
        with open(log, "rb") as stream:
            while len(header := stream.read(HEADER.size)) == HEADER.size:
                change, path_bytes, target_bytes, _, inode, offset, data_bytes = (
                    HEADER.unpack(header))
                body = stream.read(path_bytes + target_bytes + data_bytes)
                if len(body) < path_bytes + target_bytes + data_bytes:
                    return  # the daemon was killed while it wrote this
                path = body[:path_bytes].decode()
                target = body[path_bytes:path_bytes + target_bytes].decode()
                self.take(change, inode, offset, path, target, body[path_bytes + target_bytes:])

    def take(self, change, inode, offset, path, target, data):
        if change == CREATE:
            file = self.files[inode] = self.current[path] = File()
            self.name_later(os.path.dirname(path), [(path, file)])
        elif change == WRITE:
            self.files[inode].change(offset, data)
        elif change == CUT:
            self.files[inode].change(offset, None)
        elif change == SYNC and inode in self.folders:
            self.sync_folder(self.folders[inode])
        elif change == SYNC:
            self.files[inode].sync()
        elif change == RENAME:
            file = self.current[target] = self.current.pop(path)
            source_folder, target_folder = os.path.dirname(path), os.path.dirname(target)
            if source_folder == target_folder:
                self.name_later(target_folder, [(path, None), (target, file)])
            else:
                self.name_later(target_folder, [(target, file)])
                self.name_later(source_folder, [(path, None)])
        elif change == REMOVE:
            self.current.pop(path)
            self.name_later(os.path.dirname(path), [(path, None)])

    def name_later(self, folder, names):
        self.pending.append((folder, names))

    def sync_folder(self, folder):
        for changed, names in self.pending:
            if changed == folder:
                set_names(self.names, names)
        self.pending = [entry for entry in self.pending if entry[0] != folder]

    def lose_power(self, chance):
        """Leaves in the folder what the next start finds."""
        found = dict(self.names)
        for folder in set(self.folders.values()):
            pending = [names for changed, names in self.pending if changed == folder]
            for names in choose(pending, chance):
                set_names(found, names)
        # Two names of one file, as of a rename whose halves were cut, are one file no more.
        contents = {path: file.found(chance) for path, file in found.items()}
        for path in set(self.current) | set(self.names):
            pathlib.Path(path).unlink(missing_ok=True)
        for path, content in contents.items():
            # SQLite's shared memory is not written by calls: anything may be in it.
            if path.endswith("-shm"):
                content = chance.randbytes(len(content))
            pathlib.Path(path).write_bytes(content)
            os.chmod(path, 0o600)


def set_names(names, changes):
    for path, file in changes:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file
