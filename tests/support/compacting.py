"""What a ladder needs, without an engine: a counter over a trained vocabulary, and scripted pruning agents."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from vocabularies import trained_vocabulary_tokenizer

from elbowroom.context.budget import Budget
from elbowroom.context.ladder import Ladder, PrunerFailed
from elbowroom.context.prune_order import Wishes
from elbowroom.context.readable import written
from elbowroom.context.transcript import Group, Message, Transcript, messages_of
