"""What the extension module is told once."""
import os
import sysconfig

import torch


def set_up(engine, errors):
    """Gives it the exception classes by code, and the folders whose frames are not the program's."""
    engine.set_error_types(dict(errors))
    own, torchs = (os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, torch.__file__))
    engine.set_folders(own, torchs, [os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")])
