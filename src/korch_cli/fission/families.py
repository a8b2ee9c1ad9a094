"""The files that fill the table; importing this one makes the table complete."""

from korch_cli.fission import activation as activation
from korch_cli.fission import addressing as addressing
from korch_cli.fission import attention as attention
from korch_cli.fission import contrib_attention as contrib_attention
from korch_cli.fission import einsum as einsum
from korch_cli.fission import elementwise as elementwise
from korch_cli.fission import extremes as extremes
from korch_cli.fission import fused as fused
from korch_cli.fission import indexing as indexing
from korch_cli.fission import integer as integer
from korch_cli.fission import layout as layout
from korch_cli.fission import linear as linear
from korch_cli.fission import loss as loss
from korch_cli.fission import microsoft as microsoft
from korch_cli.fission import normalization as normalization
from korch_cli.fission import pooling as pooling
from korch_cli.fission import prefix as prefix
from korch_cli.fission import recurrent as recurrent
from korch_cli.fission import reduction as reduction
from korch_cli.fission import resize as resize
from korch_cli.fission import rotary as rotary
from korch_cli.fission import selection as selection
from korch_cli.fission import softmax as softmax
from korch_cli.fission import spread as spread
