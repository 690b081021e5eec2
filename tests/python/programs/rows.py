"""The forms of the grammar's rows. In their texts stand, as in string.Template:

    $n  a name of the path's own        $v  the text of a value        $d  the value that an absent one counts as
    $r  the expression that reads       $me the trainer, as it is called where the text stands
"""
import dataclasses
import string


@dataclasses.dataclass(frozen=True)
class Home:
    """A place in which a program keeps a value."""
    name: str
    setup: str  # makes it, with the value $v
    reads: tuple  # expressions
    writes: tuple  # statements that give it another value; none: it keeps what it has
    absent: str = ""  # makes it without the value
    delete: str = ""
    late_reads: tuple = ()  # expressions that give $d while the value is absent
    at_top: bool = False  # stands at the top of the file wherever the step stands
    package: str = ""  # text in a file of an installed package
    parameter: str = ""  # of the step, which reads it alone
    argument: str = ""  # what is given for it
    tensors: bool = True  # whether a tensor may be kept there
    kinds: str = "any"  # of the values


@dataclasses.dataclass(frozen=True)
class Form:
    """What a value is put into before it is kept."""
    name: str
    kinds: str  # of the values
    make: str  # of $v
    reads: tuple  # of $r
    changes: tuple = ()  # statements that change what is kept, in place
    setup: str = ""
    is_tensor: bool = False


@dataclasses.dataclass(frozen=True)
class Road:
    """What happens to a value between the place where it is read and its use."""
    name: str
    kinds: str
    text: str  # of $r
    setup: str = ""


@dataclasses.dataclass(frozen=True)
class Use:
    """What a value feeds."""
    name: str
    kind: str
    stage: str  # hidden: of h; loss: of loss; gradient: after backward; result: an expression that the step returns
    text: str
    values: tuple  # texts
    setup: str = ""


def fill(text, **names):
    return string.Template(text).safe_substitute(names)


def fits(row, kind):
    return row.kinds == "any" or kind in row.kinds.split()


def by_name(*tables):
    rows = {}
    for row in (row for table in tables for row in table):
        assert row.name not in rows, row.name
        rows[row.name] = row
    return rows
