"""The files that fill the table, in the order in which their rules are tried: names, shapes, weights."""

from korch_cli.algebra import raising as raising  # isort: skip
from korch_cli.algebra import gelu as gelu  # isort: skip
from korch_cli.algebra import mish as mish  # isort: skip
from korch_cli.algebra import guards as guards  # isort: skip
from korch_cli.algebra import attention as attention  # isort: skip
from korch_cli.algebra import strides as strides  # isort: skip
from korch_cli.algebra import pooling as pooling  # isort: skip
from korch_cli.algebra import resizing as resizing  # isort: skip
from korch_cli.algebra import composing as composing  # isort: skip
from korch_cli.algebra import parting as parting  # isort: skip
from korch_cli.algebra import joining as joining  # isort: skip
from korch_cli.algebra import transposing as transposing  # isort: skip
from korch_cli.algebra import splitting as splitting  # isort: skip
from korch_cli.algebra import folding as folding  # isort: skip
from korch_cli.algebra import gates as gates  # isort: skip
from korch_cli.algebra import blocked as blocked  # isort: skip
from korch_cli.algebra import sums as sums  # isort: skip
from korch_cli.algebra.rule import entered as entered
