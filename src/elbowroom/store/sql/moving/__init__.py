"""What is done to a store that no server has open: it is copied into another database, and checked row by row."""

from elbowroom.store.sql.moving.checking import Checked, check_store
from elbowroom.store.sql.moving.copying import copy_store

__all__ = ["Checked", "check_store", "copy_store"]
