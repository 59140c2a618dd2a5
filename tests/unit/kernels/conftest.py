"""One torch thread: shapes here are small, and spinning threads slow each other down on 2 cores."""

import torch

torch.set_num_threads(1)
