"""A file's bytes from the hub into its cache, going on where a download was killed. Knows no names of models.

The hub's library downloads to a name that nobody finds again, and by Xet in no order. Here the bytes are asked for by
plain HTTP, the first ones first, under a name of their own; whole, they lie where the library looks for them.
"""

import fcntl
import hashlib
import os
from io import BufferedRandom
from pathlib import Path
from typing import Any

_LEFT = ".parkway.incomplete"
_SHA256_DIGITS = 64


def left_bytes(repo: str) -> int:
    """Of a repository's files that have come in part."""
    return sum(path.stat().st_size for path in _blobs(repo).glob(f"*{_LEFT}"))


def fetch_blob(repo: str, file: str, token: str | None, bar: Any) -> None:
    """Fetches a file unless it is there. `bar` shows how far it is. Raises what the hub's library raises.

    One that the hub gives nobody by plain HTTP is left to the library.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(repo, file)
    found = get_hf_file_metadata(url, token=token)
    if not found.etag or not found.size or found.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        return
    blob = _blobs(repo) / found.etag
    if blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    left = blob.with_name(blob.name + _LEFT)
    with left.open("a+b") as partial:
        fcntl.flock(partial, fcntl.LOCK_EX)
        if not blob.exists():  # who held the lock may have fetched it
            _complete(partial, url, token, found.size, found.etag, bar)
            os.replace(left, blob)


def _complete(partial: BufferedRandom, url: str, token: str | None, size: int, etag: str, bar: Any) -> None:
    """Appends what is missing; all anew if the whole is not what its name says, as after a loss of power."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented all the same

    had = partial.seek(0, os.SEEK_END)
    if had > size:
        had = partial.truncate(0)
    how = {"headers": build_hf_headers(token=token), "expected_size": size, "tqdm_class": bar}
    http_get(url, partial, resume_size=had, **how)
    if had and not _is_whole(partial, etag):
        partial.truncate(0)
        http_get(url, partial, **how)


def _is_whole(file: BufferedRandom, etag: str) -> bool:
    """The hub names large files by their SHA-256; others are not looked at."""
    file.flush()
    file.seek(0)
    return len(etag) != _SHA256_DIGITS or hashlib.file_digest(file, "sha256").hexdigest() == etag


def _blobs(repo: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model") / "blobs"
