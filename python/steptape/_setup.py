"""What the extension module is told once."""
import os

import torch


def set_up(engine, errors):
    """Gives it the exception classes by code, and the folders whose frames are not the program's."""
    engine.set_error_types(dict(errors))
    engine.set_foreign_folders([os.path.dirname(os.path.abspath(file)) + os.sep
                                for file in (torch.__file__, __file__)])
