"""Which conversation does a history belong to? The newest ones are known from memory."""

from elbowroom.store.index.conversation_index import ConversationIndex
from elbowroom.store.index.filling import fill
from elbowroom.store.index.keys import IndexedConversation, name_number, number_of

__all__ = ["ConversationIndex", "IndexedConversation", "fill", "name_number", "number_of"]
