"""Models by their names on the hub: which files are meant, and how they are fetched from a stand-in of its API."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants, file_download

from parkway.errors import StartError
from parkway.weights import hub

COMMIT = "0123456789" * 4
REPO = "owner/name"
QUANTS = ["name-Q2_K.gguf", "name-Q4_K_M.gguf", "name-Q8_0.gguf", "mmproj-name-f16.gguf", "README.md"]
SPLIT = [f"BF16/name-BF16-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
FOLDER = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
FOLDER += ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]


class Hub:
    """Answers as the hub does. `files` are those of the one repository; `breaks` is how many downloads break off;
    `falls`: with that, the hub is down."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.files: dict[str, bytes] = {}
        self.refusal: tuple[int, str] | None = None
        self.breaks = 0
        self.falls = False
        self.asked: list[tuple[str, str, str | None]] = []
        self.tokens: set[str | None] = set()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"

    def contents(self, path: str) -> tuple[bytes, dict[str, str]] | None:
        if path.startswith(f"/api/models/{REPO}"):
            siblings = [{"rfilename": name, "size": len(text)} for name, text in self.files.items()]
            return json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode(), {}
        file = self.files.get(path.partition("/resolve/main/")[2])
        if file is None:
            return None
        return file, {"ETag": f'"{hashlib.sha256(file).hexdigest()}"', "X-Repo-Commit": COMMIT}


def answering(stand_in: list[Hub]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            hub, path = stand_in[0], self.path.partition("?")[0]
            hub.asked.append((self.command, path, self.headers.get("Range")))
            hub.tokens.add(self.headers.get("Authorization"))
            found = hub.contents(path)
            if hub.refusal or found is None:
                status, code = hub.refusal or (404, "EntryNotFound" if REPO in path else "RepoNotFound")
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send(*found)

        def send(self, text: bytes, headers: dict[str, str]) -> None:
            start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(text) - 1}/{len(text)}")
            self.send_header("Content-Length", str(len(text) - start))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET" and headers and stand_in[0].breaks:
                stand_in[0].breaks -= 1
                stand_in[0].refusal = (503, "") if stand_in[0].falls else None
                self.wfile.write(text[start : start + (len(text) - start) // 2])
                self.close_connection = True
            elif self.command == "GET":
                self.wfile.write(text[start:])

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub with files of its own, in place of the one, and an empty cache."""
    found: list[Hub] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), answering(found)) as server:
        found.append(Hub(server))
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        monkeypatch.setattr(constants, "ENDPOINT", found[0].url)
        template = f"{found[0].url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr("time.sleep", lambda _: None)
        for name in ("HF_TOKEN", "HTTP_PROXY", "http_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield found[0]
        server.shutdown()
        serving.join()


def ranges(stand_in: Hub) -> list[str | None]:
    return [asked for method, path, asked in stand_in.asked if method == "GET" and "/resolve/" in path]


def fetched(stand_in: Hub) -> list[str]:
    return [path.rpartition("/")[2] for method, path, _ in stand_in.asked if method == "GET" and "/resolve/" in path]


@pytest.mark.parametrize(
    ("names", "what", "expected"),
    [
        (QUANTS, "", ["name-Q4_K_M.gguf"]),
        (QUANTS, "q8_0", ["name-Q8_0.gguf"]),
        (QUANTS, "name-Q2_K.gguf", ["name-Q2_K.gguf"]),
        (["b.gguf", "a.gguf"], "", ["a.gguf"]),
        ([*SPLIT, *QUANTS], "BF16", SPLIT),
        ([*SPLIT, *QUANTS], SPLIT[0], SPLIT),
        (SPLIT, "", SPLIT),
        (["x-UD-Q4_K_XL.gguf", "x-IQ4_XS.gguf", "x-Q4_K_M.gguf"], "UD-Q4_K_XL", ["x-UD-Q4_K_XL.gguf"]),
        (["x-UD-Q4_K_XL.gguf", "x-IQ4_XS.gguf", "x-Q4_K_M.gguf"], "IQ4_XS", ["x-IQ4_XS.gguf"]),
        ([*FOLDER, "README.md", "consolidated.safetensors", "onnx/model.safetensors", "vocab.json"], "", FOLDER),
        ([*FOLDER, *QUANTS], "", ["name-Q4_K_M.gguf"]),
    ],
)
def test_which_files_are_meant(names: list[str], what: str, expected: list[str]) -> None:
    assert hub.chosen(names, what, REPO) == sorted(expected)


@pytest.mark.parametrize(
    ("names", "what", "sentence"),
    [
        (QUANTS, "Q6_K", "owner/name: there is no GGUF file Q6_K in it; there are Q2_K, Q4_K_M, Q8_0"),
        (FOLDER, "Q6_K", "owner/name: there is no GGUF file Q6_K in it; there are none"),
        (["README.md"], "", "owner/name: there are neither GGUF files nor safetensors in it"),
        (SPLIT[:2], "", f"owner/name: {SPLIT[2]} is missing, one of 3 parts"),
    ],
)
def test_what_is_not_there_is_named(names: list[str], what: str, sentence: str) -> None:
    with pytest.raises(StartError) as refusal:
        hub.chosen(names, what, REPO)
    assert str(refusal.value) == sentence


def test_names_that_may_be_on_the_hub() -> None:
    assert all(map(hub.may_be_there, ("owner/name", "owner/name:Q8_0", "o-1/n.a_m-e:folder/file.gguf")))
    assert not any(
        map(hub.may_be_there, ("name", "/abs/olute", "./here/it", "../up", "a/b/c", "a/b.gguf", "shape:tiny"))
    )


def test_a_file_is_fetched_once(stand_in: Hub) -> None:
    stand_in.files = {name: name.encode() * 100 for name in QUANTS}
    path = hub.fetch(f"{REPO}:Q8_0", token="secret")
    assert path.name == "name-Q8_0.gguf"
    assert path.read_bytes() == stand_in.files["name-Q8_0.gguf"]
    assert hub.fetch(f"{REPO}:name-Q8_0.gguf") == path
    assert fetched(stand_in) == ["name-Q8_0.gguf"]
    assert "Bearer secret" in stand_in.tokens
    assert hub.name_of(path) == ""


def test_all_parts_are_fetched_and_the_first_is_opened(stand_in: Hub) -> None:
    stand_in.files = {name: name.encode() for name in SPLIT}
    path = hub.fetch(REPO)
    assert path.name == Path(SPLIT[0]).name
    assert [part.read_text() for part in sorted(path.parent.iterdir())] == SPLIT


def test_a_folder_is_fetched_without_what_is_not_needed(stand_in: Hub) -> None:
    stand_in.files = {name: name.encode() for name in (*FOLDER, "README.md", "pytorch_model.bin")}
    path = hub.fetch(REPO)
    assert sorted(file.name for file in path.iterdir()) == sorted(FOLDER)
    assert hub.name_of(path) == REPO


def test_a_download_that_breaks_off_goes_on_where_it_was(stand_in: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 12)
    stand_in.files = {"name-Q4_K_M.gguf": os.urandom(1 << 20)}
    stand_in.breaks = 2
    assert hub.fetch(REPO).read_bytes() == stand_in.files["name-Q4_K_M.gguf"]
    assert ranges(stand_in) == [None, f"bytes={1 << 19}-", f"bytes={(1 << 19) + (1 << 18)}-"]


def given_up(stand_in: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a file is there, as after a kill; then the hub is up again."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 12)
    stand_in.files = {"name-Q4_K_M.gguf": os.urandom(1 << 20)}
    stand_in.breaks, stand_in.falls = 1, True
    with pytest.raises(StartError, match="503"):
        hub.fetch(REPO)
    stand_in.refusal = None
    stand_in.asked.clear()


def test_a_start_after_one_that_was_killed_goes_on_where_it_was(
    stand_in: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given_up(stand_in, monkeypatch)
    path = hub.fetch(REPO)
    assert path.read_bytes() == stand_in.files["name-Q4_K_M.gguf"]
    assert ranges(stand_in) == [f"bytes={1 << 19}-"]
    assert [each.name for each in tmp_path.rglob("blobs/*")] == [path.resolve().name]


def test_what_was_left_is_fetched_again_if_it_is_damaged(
    stand_in: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given_up(stand_in, monkeypatch)
    [left] = tmp_path.rglob("*.incomplete")
    left.write_bytes(bytes(left.stat().st_size))
    assert hub.fetch(REPO).read_bytes() == stand_in.files["name-Q4_K_M.gguf"]
    assert ranges(stand_in) == [f"bytes={1 << 19}-", None]


def test_what_was_left_needs_no_room_again(stand_in: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given_up(stand_in, monkeypatch)
    room = {"free": (1 << 19) - 1}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(**room))
    with pytest.raises(StartError, match="no room"):
        hub.fetch(REPO)
    room["free"] += 1
    assert hub.fetch(REPO).read_bytes() == stand_in.files["name-Q4_K_M.gguf"]


def test_what_was_fetched_before_needs_no_hub(
    stand_in: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.files = {"name-Q4_K_M.gguf": b"G"}
    path = hub.fetch(REPO)
    asked = len(stand_in.asked)
    assert hub.fetch(REPO, offline=True) == path
    assert len(stand_in.asked) == asked
    with pytest.raises(StartError, match=r"^owner/name:Q8_0: neither a file here nor fetched before, and --offline "):
        hub.fetch(f"{REPO}:Q8_0", offline=True)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    capsys.readouterr()
    assert hub.fetch(REPO) == path
    assert capsys.readouterr().err == "parkway: the hub can't be reached; owner/name is as it was fetched before\n"


def test_without_a_hub_it_is_one_sentence(stand_in: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StartError, match=r"^owner/name: neither a file here nor fetched before, and the hub can't .*$"):
        hub.fetch(REPO)


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (
            (403, "GatedRepo"),
            "owner/name: its owner gives it to who asks: do so at {url}/owner/name, then",
        ),
        (
            (404, "RepoNotFound"),
            "owner/name: neither a file here nor a model on {url}; for one that is private, set HF_TOKEN",
        ),
        ((401, ""), "owner/name: {url} lets nobody read it without a right to: check HF_TOKEN"),
        ((500, ""), "owner/name: {url} answered with an error 500; try again later"),
    ],
    ids=str,
)
def test_refusals_of_the_hub(stand_in: Hub, refusal: tuple[int, str], sentence: str) -> None:
    stand_in.refusal = refusal
    with pytest.raises(StartError) as told:
        hub.fetch(REPO)
    assert str(told.value).startswith(sentence.format(url=stand_in.url))
    assert "\n" not in str(told.value)


def test_a_full_disk(stand_in: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in.files = {"name-Q4_K_M.gguf": b"G"}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def none_free(_: Any) -> Any:
        return SimpleNamespace(free=0)

    told = rf"^owner/name: no room for it in {tmp_path}: free some, or choose another place with HF_HOME$"
    for module, name, broken in ((file_download, "http_get", full), (shutil, "disk_usage", none_free)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, broken)
            with pytest.raises(StartError, match=told):
                hub.fetch(REPO)
    assert not fetched(stand_in)
    assert hub.fetch(REPO).read_bytes() == b"G"


def test_the_command_serves_from_the_hub(stand_in: Hub, smollm2: Path, tmp_path: Path) -> None:
    stand_in.files = {"small-Q4_1.gguf": smollm2.read_bytes()}
    environment = os.environ | {"HF_ENDPOINT": stand_in.url, "HF_HUB_CACHE": str(tmp_path), "COLUMNS": "120"}
    command = [sys.executable, "-m", "parkway.cli", "inspect", f"{REPO}:Q4_1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "small-Q4_1.gguf" in done.stdout
    missing = subprocess.run([*command[:-1], f"{REPO}:Q8_0"], env=environment, capture_output=True, text=True)
    assert missing.returncode == 2
    assert missing.stderr == "parkway: owner/name: there is no GGUF file Q8_0 in it; there are Q4_1\n"
