"""Where torch and others bring NVRTC: the folders of sys.path, which may hold anything."""

import os


def _is_folder(path):
    try:
        return isinstance(path, str) and path != '' and b'\0' not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def folders(paths):
    return ':'.join(filter(_is_folder, paths))
