"""What the extension module is told once."""
import os
import sysconfig

import torch


def set_up(engine, errors):
    """Gives it the exception classes by code, and the folders whose frames are not the program's."""
    engine.set_error_types(dict(errors))
    folders = [os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__)]
    engine.set_foreign_folders(folders)
    engine.set_watched_folders(folders[1], folders[0], [os.path.abspath(sysconfig.get_path(name)) + os.sep
                                                        for name in ("stdlib", "platstdlib")])
