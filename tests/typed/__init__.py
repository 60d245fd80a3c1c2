"""Programs that type checkers must refuse."""
