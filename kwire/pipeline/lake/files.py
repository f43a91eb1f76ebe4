"""Access to the warehouse's file system through Hadoop: a local directory, HDFS or an object store."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.pipeline.lake.locks.file_lock import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileFacts(NamedTuple):
    """The path and size of a file. `path` is relative to the listed directory."""

    path: str
    size_bytes: int


class Files:
    """The files below one root directory. All paths are relative to the root and separated by `/`."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        self.root = root.rstrip("/")
        self._java: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._root = self._java.org.apache.hadoop.fs.Path(self.root)
        conf = spark._jsc.hadoopConfiguration()
        # A new instance, because the settings below must not change Hadoop's shared instance.
        self._system = self._java.org.apache.hadoop.fs.FileSystem.newInstance(self._root.toUri(), conf)
        # On a local disk Hadoop stores checksums in separate files. If a process were killed after it has replaced a
        # file and before it has replaced the checksum, the file would be unreadable.
        self._system.setWriteChecksum(False)
        self._system.setVerifyChecksum(False)
        self._context = self._java.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), conf)

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. The list is empty if the directory does not exist."""
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path(path)))

    def below(self, path: str) -> Iterator[FileFacts]:
        """Yield all files in a directory tree, except hidden files and files in hidden directories.

        Hidden directories are not listed, because another process may be moving or deleting their files.
        """
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
        """Replace a file atomically: readers see the complete old or the complete new content."""
        fresh = f"{path}.new"
        stream = self._system.create(self._path(fresh), True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        local = local_path(self.root)
        if local is not None:
            # On a local disk, Hadoop's rename would first delete the old file, so it would not be atomic.
            (local / fresh).replace(local / path)
            return
        options = self._gateway.new_array(self._java.org.apache.hadoop.fs.Options.Rename, 1)
        options[0] = self._java.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        self._context.rename(self._path(fresh), self._path(path), options)

    def move(self, path: str, target: str) -> None:
        """Move a file to a path that does not exist yet. Create the directories of the path."""
        destination = self._path(target)
        self._system.mkdirs(destination.getParent())
        if not self._system.rename(self._path(path), destination):
            raise OSError(f"{self.uri(path)} could not be moved to {self.uri(target)}")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content. Do nothing if the path does not exist."""
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.uri(path))


def is_hidden(name: str) -> bool:
    """Return whether Spark and other readers ignore files with this name."""
    return name.startswith(("_", "."))
