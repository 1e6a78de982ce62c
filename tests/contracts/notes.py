"""What every ``Notes`` does."""

from tests.contracts.stores import StoresCase


class NotesContract(StoresCase):
    """The last word under a name holds."""

    def test_a_note_is_there_until_another_takes_its_place(self) -> None:
        assert self.stores().notes.get("limits") is None
        self.stores().notes.put("limits", b"1")
        self.stores().notes.put("other", b"2")
        self.settle()
        assert (self.stores().notes.get("limits"), self.stores().notes.get("other")) == (b"1", b"2")
        self.stores().notes.put("limits", b"")
        self.settle()
        assert (self.stores().notes.get("limits"), self.stores().notes.get("other")) == (b"", b"2")
