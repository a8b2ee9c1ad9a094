"""The files that fill the table; importing this one makes the table complete."""

from korch_cli.fission import activation as activation
from korch_cli.fission import addressing as addressing
from korch_cli.fission import elementwise as elementwise
from korch_cli.fission import extremes as extremes
from korch_cli.fission import indexing as indexing
from korch_cli.fission import layout as layout
from korch_cli.fission import linear as linear
from korch_cli.fission import microsoft as microsoft
from korch_cli.fission import normalization as normalization
from korch_cli.fission import pooling as pooling
from korch_cli.fission import prefix as prefix
from korch_cli.fission import reduction as reduction
from korch_cli.fission import resize as resize
from korch_cli.fission import selection as selection
from korch_cli.fission import softmax as softmax
from korch_cli.fission import spread as spread
