"""Plans to files: the output model, the source of its library, the plan document."""

from korch_cli.emit.cuda_library import cuda_kernel_unit as cuda_kernel_unit
from korch_cli.emit.cuda_library import cuda_library_headers as cuda_library_headers
from korch_cli.emit.cuda_library import cuda_registration_unit as cuda_registration_unit
from korch_cli.emit.enclose import enclose as enclose
from korch_cli.emit.files import copy_model as copy_model
from korch_cli.emit.files import require_apart as require_apart
from korch_cli.emit.files import save_model as save_model
from korch_cli.emit.files import staging as staging
from korch_cli.emit.files import write_set as write_set
from korch_cli.emit.functions import can_be_function as can_be_function
from korch_cli.emit.functions import empty_model as empty_model
from korch_cli.emit.functions import probe_model as probe_model
from korch_cli.emit.given import with_given as with_given
from korch_cli.emit.library import ort_headers as ort_headers
from korch_cli.emit.library import registration_unit as registration_unit
from korch_cli.emit.model import build_model as build_model
from korch_cli.emit.planfile import PLAN_SCHEMA as PLAN_SCHEMA
from korch_cli.emit.planfile import plan_document as plan_document
from korch_cli.emit.planfile import read_plan as read_plan
