"""Few examples a property by default, for fast tests; ``HYPOTHESIS_PROFILE=thorough`` for more.

No deadline either way: a busy machine is no defect.
"""

import os

from hypothesis import settings

settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
