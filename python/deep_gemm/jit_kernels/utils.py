"""Names of release 1."""

from .._C import get_num_sms, set_num_sms
from .._v1 import ceil_div, get_col_major_tma_aligned_tensor
from ..utils.layout import get_m_alignment_for_contiguous_layout
