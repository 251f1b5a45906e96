"""More examples than the profile says, for what rarely fails: 60 in the quick suite, 300 in the long one."""

from typing import Final

from hypothesis import settings

MANY: Final = settings(max_examples=3 * settings().max_examples)
