"""The file system under a warehouse, as Spark itself reaches it: a directory of this machine, HDFS, an object store."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.pipeline.lake.file_lock import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileFacts(NamedTuple):
    """`path` is relative to the directory that was asked about."""

    path: str
    size_bytes: int


class Files:
    """Below one root; all paths are relative to it, with `/` between their parts."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        self.root = root.rstrip("/")
        self._java: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._root = self._java.org.apache.hadoop.fs.Path(self.root)
        conf = spark._jsc.hadoopConfiguration()
        # Of our own, because of what follows: others in this process share theirs.
        self._system = self._java.org.apache.hadoop.fs.FileSystem.newInstance(self._root.toUri(), conf)
        # On a local disk Hadoop keeps checksums in files beside the others. Replacing a file replaces its checksum a
        # moment later, and a process that dies in between would leave a file that nobody can read.
        self._system.setWriteChecksum(False)
        self._system.setVerifyChecksum(False)
        self._context = self._java.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), conf)

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted; nothing if it is not there."""
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path(path)))

    def below(self, path: str) -> Iterator[FileFacts]:
        """Every file in a directory and in those below it, but for hidden ones, which are not even looked at: somebody
        may just be moving and deleting them."""
        for status in self._system.listStatus(self._path(path)) if self.exists(path) else ():
            name = str(status.getPath().getName())
            if is_hidden(name):
                continue
            if not status.isDirectory():
                yield FileFacts(name, int(status.getLen()))
                continue
            for file in self.below(f"{path}/{name}" if path else name):
                yield FileFacts(f"{name}/{file.path}", file.size_bytes)

    def read(self, path: str) -> str:
        stream = self._system.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        """Write a file so that others see the old one or the new one, whole."""
        fresh = f"{path}.new"
        stream = self._system.create(self._path(fresh), True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        local = local_path(self.root)
        if local is not None:
            # Hadoop would delete the old one first.
            (local / fresh).replace(local / path)
            return
        options = self._gateway.new_array(self._java.org.apache.hadoop.fs.Options.Rename, 1)
        options[0] = self._java.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        self._context.rename(self._path(fresh), self._path(path), options)

    def move(self, path: str, target: str) -> None:
        """Put a file where nothing is yet; its directories are made."""
        place = self._path(target)
        self._system.mkdirs(place.getParent())
        if not self._system.rename(self._path(path), place):
            raise OSError(f"{self.uri(path)} could not be moved to {self.uri(target)}")

    def delete(self, path: str) -> None:
        """A file, or a directory with all there is in it; nothing happens if it is not there."""
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.uri(path))


def is_hidden(name: str) -> bool:
    """As Spark and others see it: what begins with these is no data."""
    return name.startswith(("_", "."))
