"""Fetching of published files: from a server that fails in all ways, and from folders."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import resource
import socket
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.request import Request

import pytest
from file_server import Answer, serving

from mxrun.base.errors import UserError
from mxrun.io.fetch.files import SOURCE_FILE, FetchedFile, FetchRequest, fetch_files
from mxrun.io.fetch.published import (
    PUBLISHED,
    ArchiveMember,
    PublishedDataset,
    PublishedFile,
)
from mxrun.io.fetch.transfer import SafeRedirections, TransferPolicy
from mxrun.io.files import find_file

CONTENT = bytes(number * 7 % 251 for number in range(300_000))
POLICY = TransferPolicy(timeout_s=30, attempts=3, wait_s=0)


def published(*mirrors: str, **changes: object) -> PublishedDataset:
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = PublishedFile("numbers.bin", mirrors, len(CONTENT), digest)
    return PublishedDataset("numbers", "Numbers", (replace(file, **changes),), "", "", "a test")


def fetch(folder: Path, dataset: PublishedDataset, **more: object) -> tuple[FetchedFile, ...]:
    request = FetchRequest(dataset, folder, policy=POLICY)
    return fetch_files(replace(request, **more), lambda name, have, size: None)


def failure(folder: Path, dataset: PublishedDataset, **more: object) -> str:
    with pytest.raises(UserError) as caught:
        fetch(folder, dataset, **more)
    assert not (folder / "numbers.bin").exists()
    return str(caught.value)


def test_a_file_arrives_whole_with_its_source(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    with serving({"/numbers.bin": CONTENT}) as server:
        dataset = published(f"{server.url}/")
        request = FetchRequest(dataset, tmp_path / "new" / "folder", policy=POLICY)
        (file,) = fetch_files(request, lambda *progress: seen.append(progress))
    assert (request.folder / "numbers.bin").read_bytes() == CONTENT
    assert file.source == f"{server.url}/numbers.bin"
    assert seen[-1] == ("numbers.bin", len(CONTENT), len(CONTENT))
    assert [have for _, have, _ in seen] == sorted(have for _, have, _ in seen)
    record = json.loads((request.folder / SOURCE_FILE).read_text())
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert record["files"]["numbers.bin"] == {"bytes": len(CONTENT), "sha256": digest}
    assert sorted(os.listdir(request.folder)) == [SOURCE_FILE, "numbers.bin"]


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    with serving({"/numbers.bin": CONTENT}) as server:
        dataset = published(f"{server.url}/")
        fetch(tmp_path, dataset)
        (file,) = fetch(tmp_path, dataset)
        assert len(server.requests) == 1
    assert file.source == ""


def test_a_connection_that_ends_early_is_continued(tmp_path: Path) -> None:
    answers = (Answer(sends=100_000), Answer(sends=70_000), Answer(status=503))
    with serving({"/numbers.bin": CONTENT}, *answers) as server:
        fetch(tmp_path, published(f"{server.url}/"))
        ranges = [wanted for _, wanted in server.requests]
    assert ranges == ["", "bytes=100000-", "bytes=170000-", "bytes=170000-"]
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_everything_again(tmp_path: Path) -> None:
    answers = (Answer(sends=200_000), Answer(ranges=False))
    with serving({"/numbers.bin": CONTENT}, *answers) as server:
        fetch(tmp_path, published(f"{server.url}/"))
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


def test_a_server_that_falls_silent_is_asked_again(tmp_path: Path) -> None:
    # A busy machine may pause both threads for a part of a second.
    policy = replace(POLICY, timeout_s=1)
    with serving({"/numbers.bin": CONTENT}, Answer(sends=50_000, stalls=True)) as server:
        fetch(tmp_path, published(f"{server.url}/"), policy=policy)
        assert server.requests[1] == ("/numbers.bin", "bytes=50000-")
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("what", ["headers", "content"])
def test_a_server_that_sends_single_bytes_for_ever_is_asked_again(
    tmp_path: Path, what: str
) -> None:
    policy = replace(POLICY, window_s=0.3, min_rate=10_000)
    with serving({"/numbers.bin": CONTENT}, *[Answer(drips=what)] * 3) as server:
        text = failure(tmp_path, published(f"{server.url}/"), policy=policy)
        assert len(server.requests) == 3
    assert "less than 10,000 bytes/s for 0.3 s (3 attempts)" in text


def test_attempts_that_bring_nothing_end_with_the_reason(tmp_path: Path) -> None:
    answers = [Answer(sends=1000)] + [Answer(sends=0)] * 10
    with serving({"/numbers.bin": CONTENT}, *answers) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
        assert len(server.requests) == 3
        assert "the connection ended after 1,000 bytes (3 attempts)" in text
        assert "the same command continues where it stopped" in text
        server.answers.clear()
        (file,) = fetch(tmp_path, published(f"{server.url}/"))
    assert file.resumed == 1000
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


def test_a_missing_file_is_not_asked_for_again(tmp_path: Path) -> None:
    with serving({}) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
        assert len(server.requests) == 1
    assert "404" in text
    assert "--from URL" in text
    assert os.listdir(tmp_path) == []


def test_the_next_mirror_is_asked(tmp_path: Path) -> None:
    with serving({"/b/numbers.bin": CONTENT}) as server:
        (file,) = fetch(tmp_path, published(f"{server.url}/a/", f"{server.url}/b/"))
    assert file.source == f"{server.url}/b/numbers.bin"


def test_wrong_bytes_never_get_the_name(tmp_path: Path) -> None:
    wrong = bytearray(CONTENT)
    wrong[123_456] ^= 1
    with serving({"/numbers.bin": bytes(wrong)}) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
    assert "is not the published one" in text
    assert hashlib.sha256(CONTENT).hexdigest() in text
    assert hashlib.sha256(wrong).hexdigest() in text
    # What is wrong is not continued.
    with serving({"/numbers.bin": CONTENT}) as server:
        fetch(tmp_path, published(f"{server.url}/"))
        assert server.requests == [("/numbers.bin", "")]


def test_a_beginning_of_another_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".numbers.bin.partial").write_bytes(bytes(1000))
    with serving({"/numbers.bin": CONTENT}) as server:
        (file,) = fetch(tmp_path, published(f"{server.url}/"))
        assert [wanted for _, wanted in server.requests] == ["bytes=1000-", ""]
    assert file.resumed == 0
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_file_of_another_size_is_refused_before_it_is_sent(tmp_path: Path, extra: int) -> None:
    content = CONTENT[:extra] if extra < 0 else CONTENT + b"x"
    with serving({"/numbers.bin": content}) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
    assert f"expected: {len(CONTENT):,} bytes" in text
    assert f"got: {len(content):,} bytes" in text


def test_a_file_without_a_length_is_limited(tmp_path: Path) -> None:
    headers = {"Content-Length": "", "Connection": "close"}
    with serving({"/numbers.bin": CONTENT * 2}, Answer(headers=headers)) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
    assert "longer than it should be" in text
    assert (tmp_path / ".numbers.bin.partial").stat().st_size <= len(CONTENT)


def test_a_wrong_range_is_refused(tmp_path: Path) -> None:
    headers = {"Content-Range": f"bytes 7-{len(CONTENT)}/{len(CONTENT)}"}
    answers = (Answer(sends=100_000), Answer(headers=headers))
    with serving({"/numbers.bin": CONTENT}, *answers) as server:
        assert "another range" in failure(tmp_path, published(f"{server.url}/"))


def test_encoded_answers_are_refused(tmp_path: Path) -> None:
    answer = Answer(headers={"Content-Encoding": "gzip"})
    with serving({"/numbers.bin": CONTENT}, answer) as server:
        assert "encodes the file" in failure(tmp_path, published(f"{server.url}/"))


@pytest.mark.parametrize(
    "location", ["file:///etc/hostname", "ftp://127.0.0.1/numbers.bin", "gopher://x/"]
)
def test_redirections_lead_to_http_only(tmp_path: Path, location: str) -> None:
    with serving({"/numbers.bin": CONTENT}, Answer(location=location)) as server:
        assert location in failure(tmp_path, published(f"{server.url}/"))


@pytest.mark.parametrize(
    "location", ["http://[::1/x", "http://[x]/", f"http://{'a' * 70}.com/", "http://x:99999/"]
)
def test_redirections_to_what_is_no_address_are_refused(tmp_path: Path, location: str) -> None:
    with serving({"/numbers.bin": CONTENT}, Answer(location=location)) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
    assert text.startswith(f"{server.url}/numbers.bin: ")


def test_no_redirection_leads_from_https_to_http() -> None:
    redirections = SafeRedirections("https://x/numbers.bin")
    request = Request("https://x/numbers.bin")
    with pytest.raises(UserError, match="redirects to an address that is not allowed"):
        redirections.redirect_request(request, None, 302, "", {}, "http://x/numbers.bin")
    assert redirections.redirect_request(request, None, 302, "", {}, "https://y/numbers.bin")


def test_a_redirection_is_followed(tmp_path: Path) -> None:
    with serving({"/there": CONTENT}, Answer(location="/there")) as server:
        fetch(tmp_path, published(f"{server.url}/"))
        assert [path for path, _ in server.requests] == ["/numbers.bin", "/there"]


def test_endless_redirections_end(tmp_path: Path) -> None:
    answers = [Answer(location="/numbers.bin")] * 50
    with serving({"/numbers.bin": CONTENT}, *answers) as server:
        text = failure(tmp_path, published(f"{server.url}/"))
        assert len(server.requests) < 20
    assert "redirect" in text
    # What Python says of it has several lines.
    assert "The last 30x" not in text


def test_a_port_that_nobody_listens_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = failure(tmp_path, published(f"http://127.0.0.1:{port}/"))
    assert "connection refused (3 attempts)" in text


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    text = failure(tmp_path, published("http://no-such-host.invalid/"))
    assert "--from FOLDER" in text


@pytest.mark.parametrize("origin", ["file:///etc/", "ftp://x/", "http://", "data:,x", "://"])
def test_other_addresses_are_refused(tmp_path: Path, origin: str) -> None:
    text = failure(tmp_path, published("http://x/"), origin=origin)
    assert "http://" in text


def test_another_address_is_used_instead(tmp_path: Path) -> None:
    with serving({"/mirror/numbers.bin": CONTENT}) as server:
        dataset = published("http://no-such-host.invalid/")
        for number, origin in enumerate(("/mirror", "/mirror/", "/mirror/numbers.bin")):
            (file,) = fetch(tmp_path / str(number), dataset, origin=server.url + origin)
            assert file.source == f"{server.url}/mirror/numbers.bin"


def test_a_folder_is_used_instead(tmp_path: Path) -> None:
    dataset = published("http://no-such-host.invalid/")
    here = tmp_path / "here"
    here.mkdir()
    assert "numbers.bin" in failure(tmp_path / "to", dataset, origin=str(here))
    os.mkfifo(here / "numbers.bin")
    assert "not a regular file" in failure(tmp_path / "to", dataset, origin=str(here))
    (here / "numbers.bin").unlink()
    (here / "numbers.bin").write_bytes(CONTENT[:-1])
    assert "wrong size" in failure(tmp_path / "to", dataset, origin=str(here))
    (here / "numbers.bin").write_bytes(CONTENT[:-1] + b"?")
    assert "not the published one" in failure(tmp_path / "to", dataset, origin=str(here))
    (here / "numbers.bin").write_bytes(CONTENT)
    (file,) = fetch(tmp_path / "to", dataset, origin=str(here))
    assert file.source == str(here / "numbers.bin")
    assert (tmp_path / "to" / "numbers.bin").read_bytes() == CONTENT


def test_another_file_of_the_name_stays_unless_it_may_be_replaced(tmp_path: Path) -> None:
    with serving({"/numbers.bin": CONTENT}) as server:
        dataset = published(f"{server.url}/")
        (tmp_path / "numbers.bin").write_bytes(b"mine")
        with pytest.raises(UserError, match="is not the published file"):
            fetch(tmp_path, dataset)
        assert (tmp_path / "numbers.bin").read_bytes() == b"mine"
        fetch(tmp_path, dataset, overwrite=True)
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with (tmp_path / ".numbers.bin.partial").open("wb") as partial:
        fcntl.flock(partial, fcntl.LOCK_EX)
        assert "another process" in failure(tmp_path, published("http://x/"))


def test_a_link_in_place_of_the_partial_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / ".numbers.bin.partial").symlink_to(victim)
    assert "cannot write" in failure(tmp_path, published("http://x/"))
    assert victim.read_bytes() == b"precious"


def test_a_disk_without_room_is_noticed_before(tmp_path: Path) -> None:
    dataset = published("http://no-such-host.invalid/", size=1 << 62)
    text = failure(tmp_path, dataset)
    assert "there is no room" in text
    assert "--to FOLDER" in text


def test_a_disk_that_fills_up_keeps_what_arrived(tmp_path: Path) -> None:
    # A limit of the size of files fails like a full disk, in the middle of a write.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving({"/numbers.bin": CONTENT}) as server:
        dataset = published(f"{server.url}/")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_001, before[1]))
        try:
            text = failure(tmp_path, dataset)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert f"cannot write {tmp_path}/numbers.bin: file too large" in text
        (file,) = fetch(tmp_path, dataset)
        assert server.requests[1] == ("/numbers.bin", "bytes=100001-")
    assert file.resumed == 100_001
    assert (tmp_path / "numbers.bin").read_bytes() == CONTENT


def archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def archive_dataset(url: str, packed: bytes, size: int | None = 1000) -> PublishedDataset:
    members = (ArchiveMember("folder/train.bin", size), ArchiveMember("folder/names.txt"))
    digest = hashlib.sha256(packed).hexdigest()
    file = PublishedFile("all.tar.gz", (f"{url}/",), len(packed), digest, members=members)
    return PublishedDataset("numbers", "Numbers", (file,), "", "", "a test")


def test_an_archive_leaves_its_members_alone(tmp_path: Path) -> None:
    inside = {
        "folder/train.bin": bytes(1000),
        "folder/names.txt": b"a\nb\n",
        "../outside": b"never",
        "/absolute": b"never",
    }
    packed = archive(inside)
    with serving({"/all.tar.gz": packed}) as server:
        dataset = archive_dataset(server.url, packed)
        files = fetch(tmp_path / "to", dataset)
        assert [file.name for file in files] == ["train.bin", "names.txt"]
        assert sorted(os.listdir(tmp_path / "to")) == [SOURCE_FILE, "names.txt", "train.bin"]
        assert os.listdir(tmp_path) == ["to"]
        assert (tmp_path / "to" / "train.bin").read_bytes() == bytes(1000)
        # Digests of members are those of the first fetch.
        assert [file.source for file in fetch(tmp_path / "to", dataset)] == ["", ""]
        assert len(server.requests) == 1
        (tmp_path / "to" / "train.bin").write_bytes(bytes(999) + b"x")
        with pytest.raises(UserError, match="was not fetched as it is"):
            fetch(tmp_path / "to", dataset)
        (tmp_path / "to" / "train.bin").unlink()
        fetch(tmp_path / "to", dataset)
        assert (tmp_path / "to" / "train.bin").read_bytes() == bytes(1000)


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ({"folder/train.bin": bytes(1000)}, "lacks folder/names.txt"),
        ({"folder/train.bin": bytes(999), "folder/names.txt": b""}, "wrong size"),
        ({"folder/train.bin": bytes(1000), "folder/names.txt": bytes(70_000)}, "wrong size"),
    ],
)
def test_archives_with_other_members_are_refused(
    tmp_path: Path, inside: dict[str, bytes], problem: str
) -> None:
    packed = archive(inside)
    with serving({"/all.tar.gz": packed}) as server, pytest.raises(UserError, match=problem):
        fetch(tmp_path, archive_dataset(server.url, packed))


def test_an_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    problem = "cannot be unpacked"
    with serving({"/all.tar.gz": CONTENT}) as server, pytest.raises(UserError, match=problem):
        fetch(tmp_path, archive_dataset(server.url, CONTENT))


def test_files_that_were_compressed_anew_are_the_published_ones(tmp_path: Path) -> None:
    first, second = (gzip.compress(b"content" * 99, mtime=time) for time in (1, 2))
    assert (len(first), first == second) == (len(second), False)
    digests = {
        "sha256": hashlib.sha256(first).hexdigest(),
        "content_sha256": hashlib.sha256(b"content" * 99).hexdigest(),
    }
    here = tmp_path / "here"
    here.mkdir()
    (here / "numbers.bin").write_bytes(second)
    dataset = published("http://x/", size=len(first), **digests)
    fetch(tmp_path / "to", dataset, origin=str(here))
    assert (tmp_path / "to" / "numbers.bin").read_bytes() == second
    (here / "numbers.bin").write_bytes(gzip.compress(b"CONTENT" * 99, mtime=1))
    assert "not the published one" in failure(tmp_path / "other", dataset, origin=str(here))


def test_the_published_list_is_complete() -> None:
    for name, dataset in PUBLISHED.items():
        assert dataset.name == name
        for file in dataset.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.size > 4000
            assert all(mirror.endswith("/") for mirror in file.mirrors)


@pytest.mark.skipif("MXRUN_TEST_DATA" not in os.environ, reason="MXRUN_TEST_DATA is not set")
def test_real_files_have_the_published_content(tmp_path: Path) -> None:
    real = Path(os.environ["MXRUN_TEST_DATA"])
    mnist = PUBLISHED["mnist"]
    test = replace(mnist, files=tuple(file for file in mnist.files if "t10k" in file.name))
    files = fetch(tmp_path, test, origin=str(real))
    assert len(files) == 2
    assert find_file(tmp_path, "t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz")
    text = (real / "tinyshakespeare.txt").read_bytes()
    (file,) = PUBLISHED["tiny_shakespeare"].files
    assert (file.size, file.sha256) == (len(text), hashlib.sha256(text).hexdigest())
