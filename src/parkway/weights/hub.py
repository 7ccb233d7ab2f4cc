"""Models on the Hugging Face hub: which files a name means, and those files in the hub's own cache folder.

Knows nothing of what is inside the files.
"""

import errno
import io
import logging
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from parkway.errors import StartError
from parkway.weights.hub_blob import fetch_blob, left_bytes

PREFERRED = "Q4_K_M"
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(?::(?P<what>.+))?")
_PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")
_QUANT = re.compile(r"(?:^|[-_./])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4\w*))(?=[-./])", re.IGNORECASE)
_WEIGHTS = (".gguf", ".safetensors")
_FOLDER = re.compile(
    r"(?!consolidated)[^/]+\.(?:safetensors(?:\.index\.json)?|jinja)|(?:\w*config|tokenizer|added_tokens)\.json|tokenizer\.model"
)


def may_be_there(name: str) -> bool:
    """Whether a name that is no path has the form OWNER/NAME or OWNER/NAME:WHAT."""
    found = _NAME.fullmatch(name)
    return found is not None and name[0] not in ".~" and (found["what"] is not None or not name.endswith(".gguf"))


def fetch(name: str, *, token: str | None = None, offline: bool = False) -> Path:
    """The model file or folder, fetched unless it is in the cache; several parts: the first. Raises StartError.

    `name`: OWNER/NAME, the file that is meant or its quantisation behind a colon. A download that breaks off, or
    was killed, goes on where it was. Without `token` it is the one of HF_TOKEN or of `hf auth login`.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise StartError(f"{name}: must be OWNER/NAME or OWNER/NAME:FILE or OWNER/NAME:QUANT")
    repo, what = found["repo"], found["what"] or ""
    from huggingface_hub import constants

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what goes wrong is told in one sentence
    if offline or constants.HF_HUB_OFFLINE:
        return _fetched_before(repo, what, "and --offline or HF_HUB_OFFLINE forbids to ask the hub")
    try:
        with _explained(repo):
            sizes = _sizes(repo, token)
            files = chosen(sizes, what, repo)
            _check_room(repo, {file: sizes[file] for file in files})
            paths = [_downloaded(repo, file, token) for file in files]
    except ConnectionError as error:
        path = _fetched_before(repo, what, f"and the hub can't be reached: {error}")
        print(f"parkway: the hub can't be reached; {repo} is as it was fetched before", file=sys.stderr)
        return path
    return _opened_by(paths)


def chosen(names: Collection[str], what: str, repo: str) -> list[str]:
    """The files that are meant, of all those of a repository; the parts of a split file in their order.

    A GGUF file rather than safetensors, Q4_K_M rather than another. Raises StartError.
    """
    if what in names:
        return _parts(what, names, repo)
    files = sorted(name for name in names if name.endswith(".gguf") and "mmproj" not in name.lower())
    firsts = [name for name in files if not (part := _PART.search(name)) or int(part[1]) == 1]
    quant = what or PREFERRED
    fitting = [name for name in firsts if quant.lower() in (each.lower() for each in _QUANT.findall(name))]
    if fitting or (firsts and not what):
        return _parts((fitting or firsts)[0], names, repo)
    if not what and any(name.endswith(".safetensors") and "/" not in name for name in names):
        return sorted(name for name in names if _FOLDER.fullmatch(name))
    if not what:
        raise StartError(f"{repo}: there are neither GGUF files nor safetensors in it")
    known = dict.fromkeys(each for name in firsts for each in _QUANT.findall(name)[-1:])
    raise StartError(f"{repo}: there is no GGUF file {what} in it; there are {', '.join(known or firsts) or 'none'}")


def name_of(path: Path) -> str:
    """OWNER/NAME of a folder in the hub's cache; "" of any other path."""
    found = re.search(r"/models--([^/]+?)--([^/]+)/snapshots/[^/]+$", str(path))
    return f"{found[1]}/{found[2]}" if found and path.is_dir() else ""


def _parts(first: str, names: Collection[str], repo: str) -> list[str]:
    part = _PART.search(first)
    if part is None:
        return [first]
    count = int(part[2])
    parts = [f"{first[: part.start()]}-{index:05}-of-{count:05}.gguf" for index in range(1, count + 1)]
    if missing := [name for name in parts if name not in names]:
        raise StartError(f"{repo}: {missing[0]} is missing, one of {count} parts")
    return parts


def _sizes(repo: str, token: str | None) -> dict[str, int]:
    from huggingface_hub import HfApi

    info = HfApi(token=token).model_info(repo, files_metadata=True)
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def _downloaded(repo: str, file: str, token: str | None) -> Path:
    from huggingface_hub import constants, hf_hub_download

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = _shown_on(progress, file)
        if file.endswith(_WEIGHTS):
            fetch_blob(repo, file, token, bar)
        path = hf_hub_download(repo, file, token=token, cache_dir=constants.HF_HUB_CACHE, tqdm_class=bar)
    return Path(path)


def _shown_on(progress: Progress, file: str) -> Any:
    """What the hub's library tells how far it is."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **how: Any) -> None:
            self._task = progress.add_task(file, total=how.get("total"))
            how.pop("name", None)
            super().__init__(*arguments, **how | {"file": io.StringIO(), "leave": False, "disable": False})

        def display(self, *_: Any, **__: Any) -> None:
            progress.update(self._task, completed=self.n, total=self.total)

    return Bar


def _check_room(repo: str, sizes: Mapping[str, int]) -> None:
    """Raises OSError."""
    from huggingface_hub import constants, try_to_load_from_cache

    cache = Path(constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    missing = [size for file, size in sizes.items() if not isinstance(try_to_load_from_cache(repo, file, cache), str)]
    if sum(missing) - left_bytes(repo) > shutil.disk_usage(cache).free:
        raise OSError(errno.ENOSPC, "no room")


def _fetched_before(repo: str, what: str, why: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")
    branch = folder / "refs" / "main"
    snapshot = folder / "snapshots" / branch.read_text().strip() if branch.is_file() else folder / "none"
    names = [str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()]
    try:
        return _opened_by([snapshot / name for name in chosen(names, what, repo)])
    except StartError:
        asked = f"{repo}:{what}" if what else repo
        raise StartError(f"{asked}: neither a file here nor fetched before, {why}") from None


def _opened_by(paths: list[Path]) -> Path:
    return paths[0] if paths[0].suffix == ".gguf" else paths[0].parent


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Turns what the hub's library raises into one sentence. Raises ConnectionError where the hub is out of reach."""
    from httpx2 import TransportError
    from huggingface_hub import errors

    try:
        yield
    except (TransportError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise ConnectionError(_first_line(error)) from error
    except (OSError, errors.HFValidationError, errors.XetDownloadError) as error:
        raise StartError(f"{repo}: {_reason(error, repo)}") from error


def _reason(error: Exception, repo: str) -> str:
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):
        return f"its owner gives it to who asks: do so at {hub}/{repo}, then set HF_TOKEN to your access token"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"neither a file here nor a model on {hub}; for one that is private, set HF_TOKEN"
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return f"{hub} lets nobody read it without a right to: check HF_TOKEN"
        return f"{hub} answered with an error {status}; try again later"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no room for it in {constants.HF_HUB_CACHE}: free some, or choose another place with HF_HOME"
    return f"can't be fetched: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
