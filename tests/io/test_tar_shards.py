"""Tar files of records: those that other programs write, and damaged ones."""

import gzip
import io
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from mxrun.base.errors import UserError
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.tar_shards import TarWriter, scan_tar, scan_tar_records

LONG = "deep/" * 30 + "n" * 90


def write(path: Path) -> dict[str, bytes]:
    """Write three records; returns the content of each member."""
    with path.open("wb") as stream, TarWriter(stream) as writer:
        for number in range(3):
            writer.write(f"{number:06d}", {"jpg": bytes([number]) * 700, "cls": b"%d" % number})
    return {
        f"{number:06d}.{extension}": content
        for number in range(3)
        for extension, content in (("jpg", bytes([number]) * 700), ("cls", b"%d" % number))
    }


def contents(path: Path) -> dict[str, bytes]:
    file = ByteFile(path)
    return {each.name: file.read(each.start, each.size) for each in scan_tar(file)}


def records(path: Path) -> list[tuple[str, list[str]]]:
    return [(each.name, list(each.members)) for each in scan_tar_records(ByteFile(path))]


def test_records_are_read_as_written(tmp_path):
    path = tmp_path / "shard.tar"
    expected = write(path)
    assert contents(path) == expected
    assert records(path) == [(f"{number:06d}", ["jpg", "cls"]) for number in range(3)]
    again = tmp_path / "again.tar"
    write(again)
    assert again.read_bytes() == path.read_bytes()
    with tarfile.open(path) as tar:
        assert [each.name for each in tar] == list(expected)


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_files_are_refused(tmp_path, form):
    """Their holes are not stored, so that what is stored is not the content."""
    hole = tmp_path / "a.jpg"
    with hole.open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    path = tmp_path / "files.tar"
    command = [
        "tar",
        f"--format={form}",
        "--sparse",
        "-C",
        str(tmp_path),
        "-cf",
        str(path),
        "a.jpg",
    ]
    subprocess.run(command, check=True)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UserError, match=r"byte .*: the member is a sparse file"):
        contents(path)


@pytest.mark.parametrize("form", ["ustar", "gnu", "pax", "v7"])
def test_tar_files_of_other_programs_are_read(tmp_path, form):
    folder = tmp_path / "files"
    (folder / "a" / "b").mkdir(parents=True)
    names = {"a/one.jpg": b"1" * 513, "a/one.cls": b"", "a/b/two.seg.png": b"2" * 512}
    if form in ("gnu", "pax"):
        names[f"{LONG}.jpg"] = b"long"
    for name, content in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "link.jpg").symlink_to("a/one.jpg")
    path = tmp_path / "files.tar"
    command = ["tar", f"--format={form}", "--sort=name", "-C", str(folder), "-cf", str(path), "."]
    subprocess.run(command, check=True)
    assert {name.removeprefix("./"): each for name, each in contents(path).items()} == names
    assert ("a/b/two", ["seg.png"]) in records(path)
    assert ("a/one", ["cls", "jpg"]) in records(path)


def test_every_cut_is_refused(tmp_path):
    """The end mark tells a complete file from one that ends between two members."""
    path = tmp_path / "shard.tar"
    write(path)
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    # The padding after the end mark may be missing: some programs write none.
    marked = -(-end // 512) * 512 + 1024
    path.write_bytes(content[:marked])
    assert len(contents(path)) == 6
    for length in (*range(0, marked, 97), *range(0, marked, 512), marked - 1, end):
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match=f"{path}: byte "):
            contents(path)


def test_a_flipped_bit_in_a_header_is_refused(tmp_path):
    path = tmp_path / "shard.tar"
    write(path)
    content = bytearray(path.read_bytes())
    # The second record's header, at its name, size, checksum and kind.
    at = 512 + 1024 + 1024
    for offset in (3, 126, 150, 156):
        content[at + offset] ^= 1
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"byte {at}: the member's header is damaged"):
            contents(path)
        content[at + offset] ^= 1


def test_compressed_and_joined_files_are_refused(tmp_path):
    path = tmp_path / "shard.tar"
    write(path)
    content = path.read_bytes()
    path.write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match="compressed \\(gzip\\)") as caught:
        contents(path)
    assert "uncompress it" in str(caught.value)
    path.write_bytes(content * 2)
    with pytest.raises(UserError, match="data follows the end of the tar file"):
        contents(path)
    path.write_bytes(b"label,file\n" * 100)
    with pytest.raises(UserError, match="byte 0: not a tar file"):
        contents(path)


def test_two_members_with_one_extension_are_refused(tmp_path):
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("a.jpg", "a.cls", "a.JPG"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(UserError, match="two members with one extension"):
        records(path)


def test_a_writer_that_an_error_stops_leaves_no_end_mark(tmp_path):
    path = tmp_path / "shard.tar"
    with path.open("wb") as stream, suppress(UserError), TarWriter(stream) as writer:
        writer.write("one", {"jpg": b"1"})
        writer.write("t.wo", {"jpg": b"2"})
    with pytest.raises(UserError, match="no end mark"):
        contents(path)
    with pytest.raises(UserError, match="has a dot"):
        TarWriter(io.BytesIO()).write("t.wo", {"jpg": b"2"})
