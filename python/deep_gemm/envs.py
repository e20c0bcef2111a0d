"""Environment variables that an installation wants set before the library is loaded, unless the user has set them."""

import os

persistent_envs = {}

for _name, _value in persistent_envs.items():
    os.environ.setdefault(_name, _value)
