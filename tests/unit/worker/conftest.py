"""One torch thread: shapes here are small, and spinning threads slow each other down on 2 cores."""

import gc

import torch

torch.set_num_threads(1)
# measuring collects garbage before it reads memory; torch's own objects make that slow here
gc.freeze()
