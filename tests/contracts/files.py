"""What every ``Files`` must do. An implementation's tests inherit from ``FilesContract`` and say how to get one."""

import random
from abc import ABC, abstractmethod

import pytest

from pixiu.ports.files import Files


class FilesContract(ABC):
    """The contract, as tests. ``make_files`` gives an empty tree."""

    @abstractmethod
    def make_files(self) -> Files:
        """An empty tree."""

    def test_bytes_are_visible_at_once_to_every_reader(self) -> None:
        files = self.make_files()
        files.make_folder("a/b")
        file = files.open("a/b/file", create=True)
        file.write(b"hello", 0)
        other = files.open("a/b/file")
        assert other.read(0, 100) == b"hello"
        other.write(bytearray(b"J"), 0)
        other.write(memoryview(b"!!"), 5)
        assert file.read(0, 100) == b"Jello!!"
        assert file.read(2, 3) == b"llo"
        assert file.read(7, 10) == b""
        assert file.read(100, 10) == b""
        assert file.size() == 7
        file.close()
        other.close()

    def test_a_write_behind_the_end_leaves_zeros(self) -> None:
        files = self.make_files()
        file = files.open("file", create=True)
        file.write(b"x", 4)
        assert file.read(0, 10) == b"\0\0\0\0x"
        file.write(b"", 9)
        assert file.size() == 5
        file.close()

    def test_truncate_cuts_and_lengthens(self) -> None:
        files = self.make_files()
        file = files.open("file", create=True)
        file.write(b"0123456789", 0)
        file.truncate(4)
        assert file.read(0, 10) == b"0123"
        file.truncate(6)
        assert file.read(0, 10) == b"0123\0\0"
        file.flush()
        file.close()

    def test_a_file_that_is_not_there(self) -> None:
        files = self.make_files()
        with pytest.raises(FileNotFoundError):
            files.open("none")
        with pytest.raises(FileNotFoundError):
            files.open("no-folder/none", create=True)
        with pytest.raises(FileNotFoundError):
            files.flush_folder("no-folder")
        files.remove("none")
        files.remove_folder("no-folder")
        files.flush_paths(["none", "no-folder"])
        assert files.names("no-folder") == []

    def test_create_keeps_what_is_there(self) -> None:
        files = self.make_files()
        file = files.open("file", create=True)
        file.write(b"kept", 0)
        file.close()
        again = files.open("file", create=True)
        assert again.read(0, 10) == b"kept"
        again.close()

    def test_names_are_sorted_and_hold_folders_too(self) -> None:
        files = self.make_files()
        files.make_folder("f/sub/deep")
        files.make_folder("f")
        for name in ("b", "a", "10", "9"):
            files.open(f"f/{name}", create=True).close()
        assert files.names("f") == ["10", "9", "a", "b", "sub"]
        assert files.names("f/sub") == ["deep"]
        files.remove("f/a")
        files.remove_folder("f/sub")
        assert files.names("f") == ["10", "9", "b"]
        files.remove_folder("f")
        assert files.names("f") == []
        assert files.names("") == []

    def test_an_open_file_outlives_its_name(self) -> None:
        files = self.make_files()
        file = files.open("file", create=True)
        file.write(b"x", 0)
        files.remove("file")
        assert file.read(0, 1) == b"x"
        file.write(b"y", 1)
        file.flush()
        file.close()
        new = files.open("file", create=True)
        assert new.size() == 0
        new.close()

    def test_replace_puts_a_whole_file(self) -> None:
        files = self.make_files()
        for data in (b"first, and longer", b"second"):
            files.replace("control", data)
            file = files.open("control")
            assert file.read(0, 100) == data
            file.close()
        assert files.names("") == ["control"]

    def test_flushes_return(self) -> None:
        files = self.make_files()
        files.make_folder("f/g")
        file = files.open("f/g/file", create=True)
        file.write(b"x", 0)
        file.flush()
        for folder in ("f/g", "f", ""):
            files.flush_folder(folder)
        files.flush_paths(["f/g/file", "f/g", "f", "", "f/gone"])
        files.flush_paths(["f/g/file"] * 100)
        file.close()

    def test_size_and_time_of_the_disk(self) -> None:
        files = self.make_files()
        files.open("file", create=True).close()
        assert files.free_bytes() > 0
        before = files.modified_ms("file")
        file = files.open("file")
        file.write(b"x", 0)
        file.close()
        assert files.modified_ms("file") >= before

    def test_it_does_what_a_bytearray_does(self) -> None:
        rng = random.Random(5)
        files = self.make_files()
        file = files.open("file", create=True)
        model = bytearray()
        for _ in range(500):
            choice = rng.random()
            position = rng.randint(0, 3000)
            if choice < 0.6:
                data = rng.randbytes(rng.randint(1, 700))
                file.write(data, position)
                model.extend(bytes(max(position - len(model), 0)))
                model[position : position + len(data)] = data
            elif choice < 0.7:
                file.truncate(position)
                del model[position:]
                model.extend(bytes(position - len(model)))
            size = rng.randint(0, 900)
            assert file.read(position, size) == model[position : position + size]
            assert file.size() == len(model)
        file.close()
