"""Files in memory, for tests that write many: PyIceberg's FileIO on a dictionary."""

from io import BytesIO

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

FILES: dict[str, bytes] = {}


class _Output(BytesIO):
    def __init__(self, location: str) -> None:
        super().__init__()
        self.location = location

    def close(self) -> None:
        FILES[self.location] = self.getvalue()
        super().close()


class MemoryFile(InputFile, OutputFile):
    def __len__(self) -> int:
        return len(FILES[self.location])

    def exists(self) -> bool:
        return self.location in FILES

    def open(self, seekable: bool = True) -> InputStream:
        if self.location not in FILES:
            raise FileNotFoundError(self.location)
        return BytesIO(FILES[self.location])

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Output(self.location)


class MemoryIO(FileIO):
    files_appear_whole = True

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_input(self, location: str) -> InputFile:
        return MemoryFile(location)

    def new_output(self, location: str) -> OutputFile:
        return MemoryFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        if FILES.pop(path, None) is None:
            raise FileNotFoundError(path)
