"""Files that are either whole or not there."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxlossy.errors import ConfigError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends well.

    A reader sees the old file or the new one, also when the process is killed half-way.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; results are as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def named_file(field: str, name: str) -> Path:
    """A file that can be written, in a directory that is made if need be.

    Raises:
      ConfigError: it names a directory, or one that can not be written to.
    """
    path = Path(name)
    if not path.name or path.is_dir():
        raise ConfigError(field, name, "the name of a file")
    return writable_directory(field, path.parent) / path.name


def writable_directory(field: str, path: str | os.PathLike[str]) -> Path:
    """Makes the directory and tries it.

    Raises:
      ConfigError: it can not be made or written to.
    """
    try:
        if not os.fspath(path):
            raise ConfigError(field, path, "a directory")
        directory = Path(path).expanduser()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except (OSError, TypeError, ValueError) as error:  # no path, or a NUL in it
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(field, str(path), f"a writable directory; {reason}") from None
